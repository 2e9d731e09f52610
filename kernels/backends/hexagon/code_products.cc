#include "kernels/backends/hexagon/code_products.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/code_sums.h"
#include "kernels/ir/arithmetic/code_grid.h"
#include "proto/base/status_macros.h"

namespace runnel::hexagon {
namespace {

// How many terms lie inside the images, along one axis.
struct AxisTerms {
  std::vector<int64_t> by_input, by_output, by_tap;
};

AxisTerms CountTerms(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  AxisTerms terms = {std::vector<int64_t>(static_cast<size_t>(in)),
                     std::vector<int64_t>(static_cast<size_t>(out)),
                     std::vector<int64_t>(static_cast<size_t>(kernel))};
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t i = o * stride + k - padding;
      if (i < 0 || i >= in) continue;
      ++terms.by_input[static_cast<size_t>(i)];
      ++terms.by_output[static_cast<size_t>(o)];
      ++terms.by_tap[static_cast<size_t>(k)];
    }
  }
  return terms;
}

using Axis = std::vector<int64_t> AxisTerms::*;

// Of each place of a plane, and of each of `depth` channels or samples.
std::vector<int64_t> PlaneTerms(const host::Geometry& g, Axis by, int64_t depth) {
  const host::Window& w = g.window;
  const AxisTerms rows = CountTerms(g.x.h, g.y.h, w.kh, w.sh, w.ph);
  const AxisTerms columns = CountTerms(g.x.w, g.y.w, w.kw, w.sw, w.pw);
  std::vector<int64_t> terms;
  for (const int64_t row : rows.*by) {
    for (const int64_t column : columns.*by) terms.push_back(row * column * depth);
  }
  return terms;
}

// Sums in the shared memory.
template <typename T>
class Sums {
 public:
  Sums(const SharedMemory& memory, SumPlace place)
      : upper_(At(memory, place.upper)),
        lower_(place.lower == 0 ? nullptr : At(memory, place.lower)) {}

  int64_t operator[](int64_t i) const {
    return lower_ == nullptr ? upper_[i] : int64_t{256} * upper_[i] + lower_[i];
  }

 private:
  static const T* At(const SharedMemory& memory, uint32_t offset) {
    return reinterpret_cast<const T*>(memory.base() + offset);
  }

  const T* const upper_;
  const T* const lower_;
};

// Of samples by choice the first row.
CodeGrids GridsAt(const host::Call& call, size_t i) {
  const Shape& shape = call.in_shape(i);
  return {call.in(i), shape[shape.rank() - 1]};
}

// Values of images: of the output, or of the input-gradient.
void StoreImages(const host::Call& call, const host::Geometry& g, const CodeSums& places,
                 const SharedMemory& memory) {
  const bool is_forward = call.instruction().code == OpCode::kCodesForward;
  const host::Image& image = is_forward ? g.y : g.x;
  const int64_t plane = image.positions(), group = image.c / g.groups;
  const std::vector<int64_t> terms = is_forward
                                         ? PlaneTerms(g, &AxisTerms::by_output, g.x.c / g.groups)
                                         : PlaneTerms(g, &AxisTerms::by_input, g.y.c / g.groups);
  const CodeGrids left_grids = GridsAt(call, 2), right_grids = GridsAt(call, 3);
  const CodeGrid left_grid = left_grids.At(0);
  const Sums<int32_t> products(memory, places.products), left(memory, places.left),
      right(memory, places.right);
  float* to = call.out(0);
  for (int64_t n = 0, i = 0; n < image.n; ++n) {
    for (int64_t c = 0; c < image.c; ++c) {
      const CodeGrid right_grid = right_grids.At(c);
      const double bias = is_forward && call.has_input(4) ? call.in(4)[c] : 0;
      const int64_t left_at = (n * g.groups + c / group) * plane;
      for (int64_t p = 0; p < plane; ++p, ++i) {
        const TermSums sums = {products[i], left[left_at + p], right[c * plane + p],
                               terms[static_cast<size_t>(p)]};
        to[i] = ValueOfSums(left_grid, right_grid, sums, bias);
      }
    }
  }
}

// Writes a weight-gradient, or adds to what is there.
void StoreGradient(const host::Call& call, float value, float* place) {
  *place = call.adds() ? *place + value : value;
}

// Sums lie (out, kernel..., in), gradients (out, in, kernel...).
void StoreWeights(const host::Call& call, const host::Geometry& g, const CodeSums& places,
                  const SharedMemory& memory) {
  const std::vector<int64_t> terms = PlaneTerms(g, &AxisTerms::by_tap, g.x.n);
  const auto taps = static_cast<int64_t>(terms.size());
  const int64_t inputs = g.x.c / g.groups, outputs = g.y.c / g.groups;
  const CodeGrid left_grid = GridsAt(call, 2).At(0), right_grid = GridsAt(call, 3).At(0);
  const Sums<int64_t> products(memory, places.products), left(memory, places.left),
      right(memory, places.right);
  for (int64_t out = 0, i = 0; out < g.y.c; ++out) {
    float* to = call.out(0) + out * inputs * taps;
    const int64_t first_in = out / outputs * inputs;
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t in = 0; in < inputs; ++in, ++i) {
        const TermSums sums = {products[i], left[out * taps + tap],
                               right[tap * g.x.c + first_in + in], terms[static_cast<size_t>(tap)]};
        StoreGradient(call, ValueOfSums(left_grid, right_grid, sums, 0), to + in * taps + tap);
      }
    }
  }
}

void StoreBias(const host::Call& call, const host::Geometry& g, bool is_wide) {
  const CodeGrid grid = GridsAt(call, 2).At(0);
  const auto* upper = call.in<int8_t>(0);
  const int8_t* lower = is_wide ? call.in<int8_t>(4) : nullptr;
  const int64_t plane = g.y.positions();
  for (int64_t c = 0; c < g.y.c; ++c) {
    int64_t sum = 0;
    for (int64_t n = 0; n < g.y.n; ++n) {
      const int64_t first = (n * g.y.c + c) * plane;
      for (int64_t i = first; i < first + plane; ++i)
        sum += is_wide ? int64_t{256} * upper[i] + lower[i] : upper[i];
    }
    StoreGradient(call, SumOfCodes(grid, sum, g.y.n * plane), call.out(1) + c);
  }
}

// Lower parts: of gradients, input 4, if there may be more than 8 bits.
bool MayBeWide(OpCode code, size_t inputs) { return code != OpCode::kCodesForward && inputs > 4; }

}  // namespace

bool IsProductOfCodes(OpCode code) {
  return code == OpCode::kCodesForward || code == OpCode::kCodesInputGradient ||
         code == OpCode::kCodesWeightGradient;
}

absl::Status CheckProductOfCodes(const Instruction& instruction) {
  if (instruction.gate == kNoGate) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("backend hexagon has no ", Name(instruction.code),
                                               " of samples by choice (layer ", instruction.layer,
                                               ", op ", instruction.op, "); take --backend cpu"));
}

absl::Status CodeScratch::Reserve(const Program& program) {
  int64_t ones_bytes = 0, sums_bytes = 0;
  for (const auto& part : program.parts) {
    for (const Instruction& one : part) {
      if (!IsProductOfCodes(one.code)) continue;
      // Any offsets but 0 stand for operands that are there.
      const uint32_t low = MayBeWide(one.code, one.inputs.size()) ? 1 : 0;
      const CodeSums sums = SumsOfCodes(one.code, one.attributes.kind == OpKind::kLinear,
                                        host::GeometryOf(program, one), {.low = low});
      ones_bytes = std::max(ones_bytes, sums.ones_bytes);
      sums_bytes = std::max(sums_bytes, sums.sums_bytes);
    }
  }
  if (ones_bytes > (ones_ == nullptr ? 0 : ones_->bytes())) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> ones, memory_->Allocate(ones_bytes));
    std::memset(ones->address() + kTailRoom, 1, static_cast<size_t>(ones_bytes - kTailRoom));
    memory_->RecordChange(memory_->OffsetOf(ones->address()), static_cast<uint32_t>(ones_bytes));
    ones_ = std::move(ones);
  }
  if (sums_bytes > (sums_ == nullptr ? 0 : sums_->bytes())) {
    RUNNEL_ASSIGN_OR_RETURN(sums_, memory_->Allocate(sums_bytes));
  }
  return absl::OkStatus();
}

absl::Status RunProductOfCodes(const host::Call& call, const host::Geometry& geometry,
                               const CodeScratch& scratch, DspSession& session, uint64_t list) {
  const Instruction& instruction = call.instruction();
  SharedMemory& memory = scratch.memory();
  const bool is_wide =
      MayBeWide(instruction.code, instruction.inputs.size()) && GridsAt(call, 2).is_wide();
  const auto offset = [&](size_t i) { return memory.OffsetOf(call.in<std::byte>(i)); };
  const CodeSums sums =
      SumsOfCodes(instruction.code, call.attributes().kind == OpKind::kLinear, geometry,
                  {.left = offset(0),
                   .low = is_wide ? offset(4) : 0,
                   .right = offset(1),
                   .ones = scratch.ones(),
                   .sums = scratch.sums()});
  RUNNEL_RETURN_IF_ERROR(session.Submit(sums.ops, list));
  RUNNEL_RETURN_IF_ERROR(session.Wait());
  if (instruction.code == OpCode::kCodesWeightGradient) {
    StoreWeights(call, geometry, sums, memory);
    if (call.has_output(1)) StoreBias(call, geometry, is_wide);
  } else {
    StoreImages(call, geometry, sums, memory);
  }
  for (size_t i = 0; i < instruction.outputs.size(); ++i)
    memory.RecordChange(memory.OffsetOf(call.out<std::byte>(i)),
                        static_cast<uint32_t>(call.out_bytes(i)));
  return absl::OkStatus();
}

}  // namespace runnel::hexagon
