#include "kernels/backends/host/plain_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel::host {
namespace {

// Into weight-gradient `output`, or on top of it.
void StoreGradient(const Call& call, absl::Span<const double> sums, size_t output) {
  float* to = call.out(output);
  for (const double sum : sums) {
    const auto gradient = static_cast<float>(sum);
    *to = call.adds() ? *to + gradient : gradient;
    ++to;
  }
}

}  // namespace

absl::Status Dropout(const Call& call) {
  const double rate = call.attributes().rate;
  const float scale = static_cast<float>(1 / (1 - rate));
  const CounterRandom random(call.context.run_seed, RandomPurpose::kDropout,
                             static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                             static_cast<uint64_t>(call.context.sequence.value()));
  const float* x = call.in(0);
  float* y = call.out(0);
  const auto elements = static_cast<uint64_t>(call.out_shape(0).elements());
  for (uint64_t i = 0; i < elements; ++i) y[i] = random.Uniform(i) >= rate ? x[i] * scale : 0.0f;
  return absl::OkStatus();
}

void ConvertFloats(absl::Span<const std::byte> from, DType from_type, absl::Span<std::byte> to,
                   DType to_type) {
  constexpr size_t kPiece = 1024;
  float values[kPiece];
  const NumberType &source = TypeOf(from_type), &target = TypeOf(to_type);
  const size_t elements = to.size() / target.bytes;
  for (size_t at = 0; at < elements; at += kPiece) {
    const size_t count = std::min(kPiece, elements - at);
    const absl::Span<float> piece(values, count);
    source.to_float(from.subspan(at * source.bytes, count * source.bytes), 0, piece);
    target.from_float(piece, to.subspan(at * target.bytes, count * target.bytes));
  }
}

absl::Status Copy(const Call& call) {
  if (call.in_dtype(0) != call.out_dtype(0)) {
    ConvertFloats({call.in<std::byte>(0), static_cast<size_t>(call.in_bytes(0))}, call.in_dtype(0),
                  {call.out<std::byte>(0), static_cast<size_t>(call.out_bytes(0))},
                  call.out_dtype(0));
    return absl::OkStatus();
  }
  std::memcpy(call.out<std::byte>(0), call.in<std::byte>(0), call.out_bytes(0));
  return absl::OkStatus();
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int64_t rows) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < rows) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", tokens[i], " at ", i, " is not below the ", rows,
                     " rows of the embedding; take a model with more rows"));
  }
  return absl::OkStatus();
}

// Tables may be flat: how wide they are is what a token becomes.
absl::Status EmbeddingForward(const Call& call) {
  const absl::Span<const int32_t> tokens(call.in<int32_t>(0),
                                         static_cast<size_t>(call.in_shape(0).elements()));
  const int64_t width = call.out_shape(0).elements() / call.in_shape(0).elements();
  RUNNEL_RETURN_IF_ERROR(CheckTokens(tokens, call.in_shape(1).elements() / width));
  float* y = call.out(0);
  for (const int32_t token : tokens) y = std::copy_n(call.in(1) + token * width, width, y);
  if (!call.has_input(2)) return absl::OkStatus();
  const int64_t places = call.in_shape(0)[1] * width;
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i)
    call.out(0)[i] += call.in(2)[i % places];
  return absl::OkStatus();
}

absl::Status EmbeddingWeightGradient(const Call& call) {
  const absl::Span<const int32_t> tokens(call.in<int32_t>(1),
                                         static_cast<size_t>(call.in_shape(1).elements()));
  const int64_t width = call.in_shape(0).elements() / call.in_shape(1).elements();
  const int64_t elements = call.out_shape(0).elements();
  RUNNEL_RETURN_IF_ERROR(CheckTokens(tokens, elements / width));
  std::vector<double> sums(static_cast<size_t>(elements));
  const float* dy = call.in(0);
  for (const int32_t token : tokens) {
    for (int64_t i = 0; i < width; ++i) sums[static_cast<size_t>(token * width + i)] += *dy++;
  }
  StoreGradient(call, sums, 0);
  if (!call.has_output(1)) return absl::OkStatus();
  const int64_t places = call.in_shape(1)[1] * width;
  sums.assign(static_cast<size_t>(places), 0.0);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i)
    sums[static_cast<size_t>(i % places)] += static_cast<double>(call.in(0)[i]);
  StoreGradient(call, sums, 1);
  return absl::OkStatus();
}

}  // namespace runnel::host
