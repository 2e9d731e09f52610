#include "compress/lowrank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/float_state.h"
#include "compress/kernels/codec_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kStateVersion = 1;
constexpr int kFirstSteps = 3;
// Of a column's square that earlier columns do not explain: less is rounding.
constexpr double kLeastShare = 1e-12;

// How a tensor travels. rank 0: as it is.
struct Factors {
  size_t rows = 0;
  size_t columns = 0;
  size_t rank = 0;

  size_t floats() const { return rank == 0 ? rows * columns : rank * (rows + columns); }
  Bytes bytes() const { return Bytes(static_cast<int64_t>(floats() * sizeof(float))); }
};

Factors FactorsOf(int rank, const Shape& shape) {
  const auto n = static_cast<size_t>(shape.elements());
  Factors best = {1, n, 0};
  size_t rows = 1;
  for (int64_t dim : shape.dims()) {
    rows *= static_cast<size_t>(dim);
    if (rows + n / rows < best.rows + best.columns) best = {rows, n / rows, 0};
  }
  const size_t held = std::min({static_cast<size_t>(rank), best.rows, best.columns});
  if (held * (best.rows + best.columns) < n) best.rank = held;
  return best;
}

float HeldWithinFloats(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMost, kMost));
}

// The sum of a[e] * b[e], in eight lanes that all machines have.
template <typename A, typename B>
double Dot(const A* a, const B* b, size_t n) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  const size_t whole = n / kLanes * kLanes;
  for (size_t e = 0; e < whole; e += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(a[e + lane]) * static_cast<double>(b[e + lane]);
    }
  }
  for (size_t e = whole; e < n; ++e) {
    lanes[e - whole] += static_cast<double>(a[e]) * static_cast<double>(b[e]);
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// to += factor * from.
template <typename From>
void AddScaled(double factor, const From* from, size_t n, double* to) {
  for (size_t e = 0; e < n; ++e) to[e] += factor * static_cast<double>(from[e]);
}

// Makes P's columns, which lie one behind the other, orthonormal in that order; one that the earlier
// ones explain becomes 0.
void Orthonormalize(const Factors& f, double* p) {
  for (size_t j = 0; j < f.rank; ++j) {
    double* column = p + j * f.rows;
    const double before = Dot(column, column, f.rows);
    for (size_t earlier = 0; earlier < j; ++earlier) {
      const double* other = p + earlier * f.rows;
      AddScaled(-Dot(other, column, f.rows), other, f.rows, column);
    }
    const double square = Dot(column, column, f.rows);
    const double scale = square > kLeastShare * before ? 1 / std::sqrt(square) : 0;
    for (size_t i = 0; i < f.rows; ++i) column[i] *= scale;
  }
}

class LowrankEncoder final : public Encoder {
 public:
  LowrankEncoder(int rank, const EncoderKey& key) : rank_(rank), key_(key) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  std::string SaveState() const override { return SaveFloats(Tag(), q_); }
  absl::Status RestoreState(absl::string_view state) override {
    RUNNEL_ASSIGN_OR_RETURN(q_, RestoreFloats(absl::StrCat("lowrank:", rank_), Tag(), state));
    return absl::OkStatus();
  }

 private:
  std::string Tag() const { return {'L', kStateVersion, static_cast<char>(rank_), 0}; }
  // Fills the columns of q_ that are zero, which would stay so.
  void DrawColumns(const Factors& f, Sequence sequence);
  void Step(const Factors& f, const float* m);

  const int rank_;
  const EncoderKey key_;
  // Columns of Q, and of P, one behind the other. q_ is empty before the first micro-batch.
  std::vector<float> q_;
  std::vector<double> p_;
  std::vector<double> sums_;
};

void LowrankEncoder::DrawColumns(const Factors& f, Sequence sequence) {
  const CounterRandom random(key_.run_seed, key_.purpose, key_.boundary,
                             static_cast<uint64_t>(sequence.value()));
  for (size_t j = 0; j < f.rank; ++j) {
    float* column = q_.data() + j * f.columns;
    if (std::any_of(column, column + f.columns, [](float value) { return value != 0; })) continue;
    for (size_t k = 0; k < f.columns; ++k) column[k] = random.Uniform(j * f.columns + k) - 0.5f;
  }
}

void LowrankEncoder::Step(const Factors& f, const float* m) {
  p_.resize(f.rows * f.rank);
  for (size_t i = 0; i < f.rows; ++i) {
    for (size_t j = 0; j < f.rank; ++j) {
      p_[j * f.rows + i] = Dot(m + i * f.columns, q_.data() + j * f.columns, f.columns);
    }
  }
  Orthonormalize(f, p_.data());
  for (double& value : p_) value = static_cast<float>(value);  // what the decoder has
  sums_.assign(f.columns * f.rank, 0.0);
  for (size_t i = 0; i < f.rows; ++i) {
    for (size_t j = 0; j < f.rank; ++j) {
      AddScaled(p_[j * f.rows + i], m + i * f.columns, f.columns, sums_.data() + j * f.columns);
    }
  }
  for (size_t e = 0; e < q_.size(); ++e) q_[e] = HeldWithinFloats(sums_[e]);
}

absl::Status LowrankEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                    absl::Span<std::byte> payload) {
  const Factors f = FactorsOf(rank_, x.shape);
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), f.bytes()));
  const auto n = static_cast<size_t>(x.shape.elements());
  if (BestCodecKernels().max_abs_bits(x.f32(), n) >= kInfinityBits) {
    return NonFiniteError(x.f32(), n);
  }
  std::byte* to = payload.data();
  const auto send = [&to](float value) {
    StoreFloat(value, to);
    to += sizeof(float);
  };
  if (f.rank == 0) {
    for (size_t e = 0; e < n; ++e) send(x.f32()[e]);
    return absl::OkStatus();
  }
  const bool is_first = restart || q_.size() != f.columns * f.rank;
  if (is_first) q_.assign(f.columns * f.rank, 0.0f);
  DrawColumns(f, sequence);
  for (int step = is_first ? 0 : kFirstSteps - 1; step < kFirstSteps; ++step) Step(f, x.f32());
  for (double value : p_) send(static_cast<float>(value));
  for (float value : q_) send(value);
  return absl::OkStatus();
}

// out = P Q^T, piece by piece of Q's columns, so that a piece of all of them stays near.
void Multiply(const Factors& f, const std::byte* payload, float* out) {
  constexpr size_t kPiece = 64;
  float q[kMaxRank][kPiece];
  const std::byte* q_bytes = payload + sizeof(float) * f.rank * f.rows;
  for (size_t first = 0; first < f.columns; first += kPiece) {
    const size_t count = std::min(kPiece, f.columns - first);
    for (size_t j = 0; j < f.rank; ++j) {
      std::memcpy(q[j], q_bytes + sizeof(float) * (j * f.columns + first), sizeof(float) * count);
    }
    for (size_t i = 0; i < f.rows; ++i) {
      double sums[kPiece] = {};
      for (size_t j = 0; j < f.rank; ++j) {
        AddScaled(LoadFloat(payload + sizeof(float) * (j * f.rows + i)), q[j], count, sums);
      }
      float* to = out + i * f.columns + first;
      for (size_t k = 0; k < count; ++k) to[k] = HeldWithinFloats(sums[k]);
    }
  }
}

class LowrankCodec final : public Codec {
 public:
  explicit LowrankCodec(int rank) : rank_(rank) {}

  std::string name() const override { return absl::StrCat("lowrank:", rank_); }
  Bytes EncodedBytes(const Shape& shape) const override { return FactorsOf(rank_, shape).bytes(); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<LowrankEncoder>(rank_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  const int rank_;
};

absl::Status LowrankCodec::Decode(absl::Span<const std::byte> payload,
                                  const MutableTensorView& out) const {
  const Factors f = FactorsOf(rank_, out.shape);
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), f.bytes(), out));
  const auto at = [&payload](size_t index) {
    return LoadFloat(payload.data() + sizeof(float) * index);
  };
  for (size_t i = 0; i < f.floats(); ++i) {
    if (!std::isfinite(at(i))) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ": value ", i, " is NaN or infinite"));
    }
  }
  if (f.rank == 0) {
    std::memcpy(out.bytes.data(), payload.data(), payload.size());
  } else {
    Multiply(f, payload.data(), out.f32());
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<const Codec> MakeLowrankCodec(int rank) {
  return std::make_unique<LowrankCodec>(rank);
}

int64_t LargestRank(const Shape& shape) {
  const Factors f = FactorsOf(1, shape);
  return static_cast<int64_t>(std::min(f.rows, f.columns));
}

double LowrankError(Direction direction, double rank) {
  // The first column of activations holds their mean: 1 / pi of their square.
  const double beside_mean = direction == Direction::kForward ? 1 - std::numbers::inv_pi : 1;
  return beside_mean * std::pow(1 - rank / 64, 1.2);
}

}  // namespace runnel
