#pragma once

// The state of a model at a barrier, keyed by layer so that it fits any cut: workers get it and
// hand it back, check-points hold it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Tensors whose bytes are all zero (slots before the first step, fresh statistics) may travel
// without them: TensorData::bytes is then empty.
enum class ZeroTensors : uint8_t { kWhole, kLeftOut };

// A tensor with its bytes, little-endian, row-major.
struct TensorData {
  std::string name;  // StateTensorSpec::name
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string bytes;

  friend bool operator==(const TensorData&, const TensorData&) = default;
};

struct LayerState {
  int layer = 0;
  std::vector<TensorData> tensors;  // in the order of StateOf (number_format.h)
  std::vector<TensorData> slots;    // of the optimizer, in the order of SlotsOf

  friend bool operator==(const LayerState&, const LayerState&) = default;
};

// The state of one direction's encoder at the boundary after `boundary`.
struct EncoderState {
  int boundary = 0;
  Direction direction = Direction::kForward;
  std::string codec;  // "mbq:4": the state is of no use to another
  std::string state;  // Encoder::SaveState

  friend bool operator==(const EncoderState&, const EncoderState&) = default;
};

struct ModelState {
  std::vector<LayerState> layers;  // ascending
  std::vector<EncoderState> encoders;

  friend bool operator==(const ModelState&, const ModelState&) = default;
};

// InvalidArgument unless `state` has exactly layers first_layer..last_layer with the tensors,
// types, shapes and byte counts that the model and the format say, no mantissa of -128, no
// exponent beyond +-kMaxExponent and no kept scale that training does not make. zeros: whether
// tensors may be without bytes.
absl::Status CheckState(const ModelState& state, const ModelSpec& model, int first_layer,
                        int last_layer, const NumberFormat& format = {},
                        ZeroTensors zeros = ZeroTensors::kWhole);

// InvalidArgument if a floating-point tensor of a layer has a value that is infinite or no number.
// `field` is where the state stands.
absl::Status CheckFinite(absl::string_view field, const ModelState& state);

// Gives tensors without bytes the zeros that they stand for. Only after CheckState: their shapes
// say how many.
void FillZeros(ModelState& state);

// Layers first..last with every tensor zero, and so without bytes. InvalidArgument: the model's
// shapes do not fit, or it has no such layers.
absl::StatusOr<ModelState> ZeroState(const ModelSpec& model, int first_layer, int last_layer,
                                     const NumberFormat& format = {});

// Takes away what only training needs: the bytes of the slots, and the encoders.
void KeepWeightsOnly(ModelState& state);

// Keeps the average of a parameter (proto/base/training/weight_average.h), behind the optimizer's slots.
inline constexpr absl::string_view kAverageSlot = "average";

// Puts each parameter's average (kAverageSlot), where it has one with bytes, in its place.
void UseAverages(ModelState& state);
// And takes the averages away: the state of a run that has none.
void TakeAverages(ModelState& state);

// Bytes of each layer's state with its slots, as it is stored. InvalidArgument: the model's
// shapes do not fit.
absl::StatusOr<std::vector<int64_t>> StateBytes(const ModelSpec& model,
                                                const NumberFormat& format = {});
// Without the slots: what KeepWeightsOnly leaves.
absl::StatusOr<std::vector<int64_t>> WeightBytes(const ModelSpec& model,
                                                 const NumberFormat& format = {});

// The part of `state` for a stage of these layers, with the encoders of its two outputs.
ModelState Slice(const ModelState& state, int first_layer, int last_layer);

// Puts `part` into `whole`: its layers and encoders replace those of the same key.
void Merge(const ModelState& part, ModelState& whole);

}  // namespace runnel
