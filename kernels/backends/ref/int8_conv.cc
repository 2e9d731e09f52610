// Sums of int8 products: convolution and linear layers of integer recipes.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/backends/ref/product_geometry.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::ref {
namespace {

template <typename T>
void Finish(const Call& call, const std::vector<int64_t>& sums, int32_t exponent) {
  int64_t max_abs = 0;
  T* out = call.out<T>(0);
  for (size_t i = 0; i < sums.size(); ++i) {
    out[i] = static_cast<T>(sums[i]);
    max_abs = std::max<int64_t>(max_abs, std::abs(sums[i]));
  }
  call.out_tail(0) = {.exponent = exponent, .max_abs = max_abs};
}

std::vector<int64_t> Sums(const Call& call) {
  return std::vector<int64_t>(static_cast<size_t>(call.out_shape(0).elements()));
}

int32_t ExponentSum(const Call& call) {
  return call.in_tail(0).exponent + call.in_tail(1).exponent;
}

std::vector<int64_t> ForwardSums(const Call& call) {
  const ProductGeometry g =
      ProductGeometryOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  const int8_t *x = call.in<int8_t>(0), *weights = call.in<int8_t>(1);
  std::vector<int64_t> sums = Sums(call);
  ForEachProduct(g, [&](int64_t in, int64_t out, int64_t weight) {
    sums[out] += int32_t{x[in]} * weights[weight];
  });
  return sums;
}

std::vector<int64_t> InputGradientSums(const Call& call) {
  const ProductGeometry g =
      ProductGeometryOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const int8_t *dy = call.in<int8_t>(0), *weights = call.in<int8_t>(1);
  std::vector<int64_t> sums = Sums(call);
  ForEachProduct(g, [&](int64_t in, int64_t out, int64_t weight) {
    sums[in] += int32_t{dy[out]} * weights[weight];
  });
  return sums;
}

// The shift of these sums, kept or by their maximum; writes the kept scale's next state.
int KeepShift(const Call& call, const std::vector<int64_t>& sums) {
  int64_t max_abs = 0;
  for (int64_t sum : sums) max_abs = std::max<int64_t>(max_abs, std::abs(sum));
  const int measured = RescaleShift(max_abs, call.rule().promote_one_to_two);
  if (!call.has_output(1)) return measured;
  KeptScale& scale = *call.out<KeptScale>(1);
  BeginProduct(call.rescale(), GradientBitsFor(call), scale);
  if (MeasuresScale(call.rescale(), scale)) {
    RecordMeasured(call.rescale(), measured, scale);
    return measured;
  }
  const int shift = scale.shift;
  KeptSums seen = {.max_abs = max_abs, .elements = static_cast<int64_t>(sums.size())};
  for (int64_t sum : sums) seen.saturated += std::abs(sum) > int64_t{128} << shift ? 1 : 0;
  RecordKept(call.rescale(), seen, scale);
  return shift;
}

void RescaleSums(const Call& call, const std::vector<int64_t>& sums) {
  const int shift = KeepShift(call, sums);
  const int8_t* mask = call.has_input(2) ? call.in<int8_t>(2) : nullptr;
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    const int8_t value = SaturateMantissa(RoundBy(call, sums[i], shift, element));
    const bool zero = (call.rule().relu && value < 0) || (mask != nullptr && mask[i] <= 0);
    call.out<int8_t>(0)[i] = zero ? int8_t{0} : value;
  }
  call.out_tail(0) = {.exponent = ExponentSum(call) + shift};
}

}  // namespace

absl::Status Int8ProductForward(const Call& call) {
  Finish<int32_t>(call, ForwardSums(call), ExponentSum(call));
  return absl::OkStatus();
}

absl::Status Int8ProductInputGradient(const Call& call) {
  Finish<int32_t>(call, InputGradientSums(call), ExponentSum(call));
  return absl::OkStatus();
}

absl::Status Int8ProductForwardRescaled(const Call& call) {
  RescaleSums(call, ForwardSums(call));
  return absl::OkStatus();
}

absl::Status Int8ProductInputGradientRescaled(const Call& call) {
  RescaleSums(call, InputGradientSums(call));
  return absl::OkStatus();
}

namespace {

// Samples [begin, end) of the batch.
std::vector<int64_t> WeightGradientSums(const Call& call, int64_t begin, int64_t end) {
  ProductGeometry g = ProductGeometryOf(call.attributes(), call.in_shape(1), call.in_shape(0));
  const int8_t* dy = call.in<int8_t>(0) + g.Out(begin, 0, 0, 0);
  const int8_t* x = call.in<int8_t>(1) + g.In(begin, 0, 0, 0);
  g.batch = end - begin;
  std::vector<int64_t> sums = Sums(call);
  ForEachProduct(g, [&](int64_t in, int64_t out, int64_t weight) {
    sums[weight] += int32_t{dy[out]} * x[in];
  });
  return sums;
}

// The sums as mantissas; gives the shift.
int RoundSlice(const Call& call, std::vector<int64_t>& sums) {
  int64_t max_abs = 0;
  for (int64_t sum : sums) max_abs = std::max<int64_t>(max_abs, std::abs(sum));
  const int shift = RescaleShift(max_abs, call.rule().promote_one_to_two);
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = SaturateMantissa(RoundBy(call, sums[i], shift, static_cast<int64_t>(i)));
  return shift;
}

// BatchSplit: the mantissas of all slices, aligned to the largest shift; gives that.
int ShiftedSums(const Call& call, std::vector<int64_t>& total) {
  const int64_t batch = call.in_shape(0)[0], slice = call.split().SliceOf(batch);
  std::vector<std::vector<int64_t>> slices;
  std::vector<int> shifts;
  for (int64_t n = 0; n < batch; n += slice) {
    slices.push_back(WeightGradientSums(call, n, std::min(batch, n + slice)));
    shifts.push_back(RoundSlice(call, slices.back()));
  }
  const int largest = *std::max_element(shifts.begin(), shifts.end());
  total = Sums(call);
  for (size_t i = 0; i < total.size(); ++i) {
    for (size_t k = 0; k < slices.size(); ++k)
      total[i] += DivideByPower(slices[k][i], largest - shifts[k]);
    total[i] = SaturateMantissa(total[i]);
  }
  return largest;
}

}  // namespace

absl::Status Int8ProductWeightGradient(const Call& call) {
  const int64_t batch = call.in_shape(0)[0];
  std::vector<int64_t> sums;
  int shift = 0;
  if (call.split().ShiftsSlicesOf(batch)) {
    shift = ShiftedSums(call, sums);
  } else {
    sums = WeightGradientSums(call, 0, batch);
  }
  if (call.out_dtype(0) == DType::kInt64) {
    Finish<int64_t>(call, sums, ExponentSum(call) + shift);
  } else {
    Finish<int32_t>(call, sums, ExponentSum(call) + shift);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
