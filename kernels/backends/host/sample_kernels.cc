// Samples by a gate's choice, in plain loops.

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/backends/host/plain_kernels.h"
#include "kernels/ir/arithmetic/sample_choice.h"
#include "kernels/ir/work_tally.h"

namespace runnel::host {
namespace {

ChoiceRows RowsOf(const Call& call, size_t input) {
  return {call.in(input), call.in_shape(input)[0], call.in_shape(input)[1]};
}

// Samples whose sums are taken side by side, since each addition waits for the one before it.
constexpr int64_t kSideBySide = 8;

// sums[i] = the dot product of a[i] and b[i].
template <int64_t kCount>
void DotProducts(const std::array<const float*, kSideBySide>& a,
                 const std::array<const float*, kSideBySide>& b, int64_t size,
                 std::array<double, kSideBySide>& sums) {
  std::array<double, kCount> own = {};
  for (int64_t e = 0; e < size; ++e) {
    for (size_t i = 0; i < kCount; ++i)
      own[i] += static_cast<double>(a[i][e]) * static_cast<double>(b[i][e]);
  }
  std::copy(own.begin(), own.end(), sums.begin());
}

void AddProduct(double sum, const ChoiceRows& choice, int64_t sample, bool is_weighted,
                int64_t columns, float* dchoice) {
  const float* of_sample = choice.values + sample * choice.columns;
  if (!(of_sample[0] >= 0 && of_sample[0] < static_cast<float>(columns - kOptionColumns))) return;
  if (is_weighted) sum *= static_cast<double>(of_sample[kOptionColumns]);
  dchoice[sample * columns + kOptionColumns + static_cast<int64_t>(of_sample[0])] +=
      static_cast<float>(sum);
}

// Adds the dot product of each packed sample with its dy to the column of its option.
void AddProducts(const float* dy, const float* packed, const ChoiceRows& choice, int64_t size,
                 bool is_weighted, int64_t columns, float* dchoice) {
  std::array<const float*, kSideBySide> a, b;
  std::array<double, kSideBySide> sums;
  int64_t rows = 0;
  while (rows < choice.samples && choice.SampleOf(rows) >= 0) ++rows;
  for (int64_t row = 0; row < rows; row += kSideBySide) {
    const int64_t count = std::min(kSideBySide, rows - row);
    for (int64_t i = 0; i < count; ++i) {
      a[static_cast<size_t>(i)] = dy + choice.SampleOf(row + i) * size;
      b[static_cast<size_t>(i)] = packed + (row + i) * size;
    }
    if (count == kSideBySide) {
      DotProducts<kSideBySide>(a, b, size, sums);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        std::array<double, kSideBySide> one;
        DotProducts<1>({a[static_cast<size_t>(i)]}, {b[static_cast<size_t>(i)]}, size, one);
        sums[static_cast<size_t>(i)] = one[0];
      }
    }
    for (int64_t i = 0; i < count; ++i)
      AddProduct(sums[static_cast<size_t>(i)], choice, choice.SampleOf(row + i), is_weighted,
                 columns, dchoice);
  }
}

void TellChoices(const Instruction& gate, const StepContext& context, int64_t samples,
                 int64_t columns, const float* choice) {
  if (context.choices == nullptr) return;
  std::vector<int64_t> by_option(static_cast<size_t>(OptionCount(gate.attributes)));
  for (int64_t i = 0; i < samples; ++i) ++by_option[static_cast<size_t>(choice[i * columns])];
  context.choices->AddChoice(gate, by_option);
}

}  // namespace

void HoldSamples(const Instruction& gate, const StepContext& context, int64_t samples,
                 float* choice) {
  const CounterRandom draws = GateDraws(context.run_seed, gate.layer, context.sequence);
  for (int64_t i = 0; i < samples; ++i) {
    choice[i * kHeldColumns] = static_cast<float>(HeldOption(gate.attributes, draws, i));
  }
  OrderSamples(gate.attributes, samples, kHeldColumns, choice);
  TellChoices(gate, context, samples, kHeldColumns, choice);
}

void TakeAllSamples(const Instruction& gate, int64_t samples, float* choice) {
  for (int64_t i = 0; i < samples; ++i)
    choice[i * kHeldColumns] = static_cast<float>(OptionCount(gate.attributes) - 1);
  OrderSamples(gate.attributes, samples, kHeldColumns, choice);
}

void ChooseSamples(const Instruction& gate, const StepContext& context, const float* logits,
                   int64_t samples, float* choice, float* exploration) {
  const OpSpec& spec = gate.attributes;
  const int options = OptionCount(spec);
  const int64_t columns = ColumnsOf(spec);
  const CounterRandom draws = GateDraws(context.run_seed, gate.layer, context.sequence);
  const bool explores = exploration != nullptr && Explores(draws);
  if (exploration != nullptr) std::fill_n(exploration, samples * columns, 0.0f);
  for (int64_t i = 0; i < samples; ++i) {
    const float* of_sample = logits + i * options;
    float* row = choice + i * columns;
    const int chosen = LargestLogit(of_sample, options);
    row[0] = static_cast<float>(chosen);
    const std::vector<double> p = Probabilities(of_sample, options);
    std::copy(p.begin(), p.end(), row + kOptionColumns);
    if (exploration == nullptr) continue;
    const Explored other = explores ? ExploredOption(spec, draws, i, chosen) : Explored{};
    exploration[i * columns] = static_cast<float>(other.option);
    exploration[i * columns + kOptionColumns] = static_cast<float>(other.weight);
  }
  OrderSamples(spec, samples, columns, choice);
  TellChoices(gate, context, samples, columns, choice);
  if (exploration != nullptr) OrderSamples(spec, samples, columns, exploration);
}

void GatherSamples(const float* x, const ChoiceRows& choice, int64_t size, float* packed) {
  for (int64_t row = 0; row < choice.samples; ++row) {
    const int64_t sample = choice.SampleOf(row);
    if (sample < 0) return;
    std::memcpy(packed + row * size, x + sample * size, static_cast<size_t>(size) * sizeof(float));
  }
}

void ScatterSamples(const float* packed, const ChoiceRows& choice, const float* base, int64_t size,
                    float* y) {
  const size_t bytes = static_cast<size_t>(choice.samples * size) * sizeof(float);
  if (base == nullptr) {
    std::memset(y, 0, bytes);
  } else if (base != y) {
    std::memcpy(y, base, bytes);
  }
  for (int64_t row = 0; row < choice.samples; ++row) {
    const int64_t sample = choice.SampleOf(row);
    if (sample < 0) return;
    float* to = y + sample * size;
    const float* from = packed + row * size;
    for (int64_t e = 0; e < size; ++e) to[e] += from[e];
  }
}

void MaskGradient(const float* dy, const float* packed, const ChoiceRows& choice,
                  const float* explored, const ChoiceRows& exploration, int64_t size,
                  float* dchoice) {
  std::fill_n(dchoice, choice.samples * choice.columns, 0.0f);
  AddProducts(dy, packed, choice, size, /*is_weighted=*/false, choice.columns, dchoice);
  AddProducts(dy, explored, exploration, size, /*is_weighted=*/true, choice.columns, dchoice);
}

void ChoiceGradient(const Instruction& gate, const StepContext& context, const float* dchoice,
                    const ChoiceRows& choice, float* dlogits) {
  const int options = OptionCount(gate.attributes);
  const double price = context.price_sign * gate.attributes.rate;
  std::vector<double> dp(static_cast<size_t>(options));
  for (int64_t i = 0; i < choice.samples; ++i) {
    const float* p = choice.values + i * choice.columns + kOptionColumns;
    const float* of_masks = dchoice + i * choice.columns + kOptionColumns;
    double mean = 0;
    for (int k = 0; k < options; ++k) {
      dp[static_cast<size_t>(k)] =
          static_cast<double>(of_masks[k]) + price * CostOfOption(gate.attributes, k);
      mean += static_cast<double>(p[k]) * dp[static_cast<size_t>(k)];
    }
    for (int k = 0; k < options; ++k) {
      dlogits[i * options + k] =
          static_cast<float>(static_cast<double>(p[k]) * (dp[static_cast<size_t>(k)] - mean));
    }
  }
}

absl::Status HoldSamples(const Call& call) {
  HoldSamples(call.instruction(), call.context, call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status AllSamples(const Call& call) {
  TakeAllSamples(call.instruction(), call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status ChooseSamples(const Call& call) {
  ChooseSamples(call.instruction(), call.context, call.in(0), call.in_shape(0)[0], call.out(0),
                call.has_output(1) ? call.out(1) : nullptr);
  return absl::OkStatus();
}

absl::Status GatherSamples(const Call& call) {
  GatherSamples(call.in(0), RowsOf(call, 1), call.in_shape(0).elements() / call.in_shape(0)[0],
                call.out(0));
  return absl::OkStatus();
}

absl::Status ScatterSamples(const Call& call) {
  ScatterSamples(call.in(0), RowsOf(call, 1),
                 call.has_input(kScatterBase) ? call.in(kScatterBase) : nullptr,
                 call.out_shape(0).elements() / call.out_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status MaskGradient(const Call& call) {
  MaskGradient(call.in(0), call.in(1), RowsOf(call, 2), call.in(3), RowsOf(call, 4),
               call.in_shape(0).elements() / call.in_shape(0)[0], call.out(0));
  return absl::OkStatus();
}

absl::Status ChoiceGradient(const Call& call) {
  ChoiceGradient(call.instruction(), call.context, call.in(0), RowsOf(call, 1), call.out(0));
  return absl::OkStatus();
}

}  // namespace runnel::host
