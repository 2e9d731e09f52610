#pragma once

// Gathering of a convolution's outputs along one axis. Forward and input-gradient have the same
// form: each output sums a run of neighbouring sources, each multiplied by the tap of a run of
// neighbouring slots. Slots are the taps in the order that makes this so: unchanged in the forward;
// in the input-gradient by residue modulo the stride, and downwards. Runs leave out the padding.

#include <cstdint>

namespace runnel::cpu {

struct AxisRun {
  int32_t source = 0;
  int32_t slot = 0;
  int32_t count = 0;

  // Outputs of one class use the same taps.
  bool SameClass(const AxisRun& other) const {
    return (slot == other.slot && count == other.count) || (count == 0 && other.count == 0);
  }
};

struct AxisShape {
  int64_t in = 1, out = 1;  // sizes of the forward
  int64_t kernel = 1, stride = 1, pad = 0;
};

// The run of output `o` of the forward.
AxisRun ForwardRun(const AxisShape& shape, int64_t o);
// The run of input `i`, for the input-gradient; sources are forward outputs.
AxisRun InputGradientRun(const AxisShape& shape, int64_t i);
// The tap in a slot of the input-gradient.
int64_t InputGradientTap(const AxisShape& shape, int64_t slot);

// Outputs sorted by class.
struct Axis {
  int32_t outputs = 0;
  int32_t class_count = 0;
  AxisRun* runs = nullptr;           // by output
  int32_t* order = nullptr;          // outputs, class by class, ascending within each
  int32_t* class_begin = nullptr;    // class_count + 1 positions in order
  int64_t* source_offset = nullptr;  // by place in order: the source, in pixels
  int64_t* out_offset = nullptr;     // by place in order: the output, in elements

  const AxisRun& ClassRun(int c) const { return runs[order[class_begin[c]]]; }
};

// No axis has more classes.
int64_t MaxAxisClasses(const AxisShape& shape, int64_t outputs);
// Fills order and class_begin from runs.
void SortByClass(Axis& axis);

}  // namespace runnel::cpu
