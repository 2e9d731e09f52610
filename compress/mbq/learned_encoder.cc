#include "compress/mbq/learned_encoder.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/kernels/codec_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kStateVersion = 1;
constexpr size_t kMaxWaiting = 4096;  // far above any cap: a bound for states from outside

void AppendBits(uint64_t value, std::string& to) {
  for (int i = 0; i < 8; ++i) to += static_cast<char>(value >> (8 * i));
}

// Reads a state from front to back; a read beyond the end gives 0 and is remembered.
class StateReader {
 public:
  explicit StateReader(absl::string_view state) : rest_(state) {}

  uint64_t Bits(size_t bytes) {
    if (rest_.size() < bytes) {
      ok_ = false;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    rest_.remove_prefix(bytes);
    return value;
  }
  float Float() { return Finite(std::bit_cast<float>(static_cast<uint32_t>(Bits(4)))); }
  double Double() { return Finite(std::bit_cast<double>(Bits(8))); }
  void Require(bool condition) { ok_ = ok_ && condition; }
  bool AtEnd() const { return ok_ && rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  template <typename T>
  T Finite(T value) {
    ok_ = ok_ && std::isfinite(value);
    return value;
  }
  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace

void LearnedEncoder::Catchup(int64_t sequence) {
  const int64_t last = sequence - key_.in_flight;
  while (!waiting_.empty() && waiting_.begin()->first <= last) {
    Step(waiting_.begin()->second, parameters_);
    waiting_.erase(waiting_.begin());
  }
  sent_.erase(sent_.begin(), sent_.upper_bound(last));
}

absl::Status LearnedEncoder::Encode(const TensorView& x, Sequence sequence, bool /*restart*/,
                                    absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), PayloadBytes(x.shape)));
  const auto n = static_cast<size_t>(x.shape.elements());
  if (BestCodecKernels().max_abs_bits(x.f32(), n) >= kInfinityBits) {
    return NonFiniteError(x.f32(), n);
  }
  if (steps_ == 0) {
    parameters_ = Initial();
    Start(x.f32(), n, parameters_);
  }
  Catchup(sequence.value());
  Write(x.f32(), n, parameters_, payload.data());
  sent_[sequence.value()] = {{x.f32(), x.f32() + n}, {payload.begin(), payload.end()}};
  ++steps_;
  return absl::OkStatus();
}

absl::Status LearnedEncoder::Learn(const TensorView& gradient, Sequence sequence) {
  const auto found = sent_.find(sequence.value());
  if (found == sent_.end()) return absl::OkStatus();
  const Sent sent = std::move(found->second);
  sent_.erase(found);
  if (gradient.dtype != DType::kFloat32 || gradient.bytes.size() != 4 * sent.x.size()) {
    return absl::InvalidArgumentError(absl::StrCat("codec: gradient of micro-batch ",
                                                   sequence.value(), " has ", gradient.bytes.size(),
                                                   " bytes, needs ", 4 * sent.x.size()));
  }
  std::vector<double> derivatives =
      Derivatives(gradient.f32(), sent.x.data(), sent.x.size(), sent.payload.data());
  for (double derivative : derivatives) {
    if (!std::isfinite(derivative)) return absl::OkStatus();
  }
  waiting_[sequence.value()] = std::move(derivatives);
  return absl::OkStatus();
}

std::string LearnedEncoder::SaveState() const {
  if (steps_ == 0) return "";
  std::string state = {'L', kStateVersion, static_cast<char>(k_), mark_};
  AppendBits(static_cast<uint64_t>(steps_), state);
  for (float value : parameters_.values) {
    std::byte bytes[sizeof(float)];
    StoreFloat(value, bytes);
    state.append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
  }
  for (double moment : parameters_.moments) AppendBits(std::bit_cast<uint64_t>(moment), state);
  AppendBits(waiting_.size(), state);
  for (const auto& [sequence, derivatives] : waiting_) {
    AppendBits(static_cast<uint64_t>(sequence), state);
    for (double derivative : derivatives) AppendBits(std::bit_cast<uint64_t>(derivative), state);
  }
  return state;
}

absl::Status LearnedEncoder::RestoreState(absl::string_view state) {
  Parameters parameters = Initial();
  std::map<int64_t, std::vector<double>> waiting;
  int64_t steps = 0;
  if (!state.empty()) {
    StateReader reader(state);
    reader.Require(reader.Bits(1) == 'L');
    reader.Require(reader.Bits(1) == static_cast<uint64_t>(kStateVersion));
    reader.Require(reader.Bits(1) == static_cast<uint64_t>(k_));
    reader.Require(reader.Bits(1) == static_cast<uint8_t>(mark_));
    const uint64_t counted = reader.Bits(8);
    reader.Require(counted > 0 && counted >> 62 == 0);
    steps = static_cast<int64_t>(counted);
    for (float& value : parameters.values) value = reader.Float();
    for (double& moment : parameters.moments) moment = reader.Double();
    const uint64_t count = reader.Bits(8);
    reader.Require(count <= kMaxWaiting);
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
      const auto sequence = static_cast<int64_t>(reader.Bits(8));
      reader.Require(sequence >= 0 && (waiting.empty() || waiting.rbegin()->first < sequence));
      std::vector<double>& derivatives = waiting[sequence];
      derivatives.resize(parameters.values.size());
      for (double& derivative : derivatives) derivative = reader.Double();
    }
    if (!reader.AtEnd() || !Possible(parameters)) {
      return absl::InvalidArgumentError(
          absl::StrCat("codec: not a state of this encoder (", state.size(), " bytes)"));
    }
  }
  steps_ = steps;
  parameters_ = std::move(parameters);
  waiting_ = std::move(waiting);
  sent_.clear();
  return absl::OkStatus();
}

}  // namespace runnel
