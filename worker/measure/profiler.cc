#include "worker/measure/profiler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/measure/range_stage.h"

namespace runnel {
namespace {

// Ranges that are measured in turns, and limits on the sums of their layers and of their state:
// each holds the memory of its stage until all are measured.
constexpr size_t kTurns = 12;
constexpr int kTurnLayers = 12;
constexpr int64_t kTurnBytes = int64_t{32} << 20;
// A range of which fewer runs fill a burst is not warmed up before each measurement.
constexpr int64_t kFewRuns = 4;
// A range whose run takes this many bursts is measured on a quarter of the samples, if at least
// this many multiplications are done with each parameter: work that does not depend on the number
// of samples, which is counted four times, is then a few percent (an update reads and writes 20 bytes
// of a parameter, for which the products of a server's core take as long as 150 multiplications).
// Its tensors overflow the caches with a quarter of the samples
// too.
constexpr int64_t kLongRunBursts = 4;
constexpr int64_t kFewerSamplesFactor = 4;
constexpr int64_t kFewestSamples = 8;
constexpr int64_t kMacsPerParameter = 2048;

absl::Status CheckOptions(const ModelSpec& model, const ProfileOptions& options) {
  if (options.samples < 1 || options.repetitions < 1 || options.repetitions > 1000 ||
      options.burst_ms < 0 || options.nominal_step_ns < 0 || options.enough_ms < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile of ", options.samples, " samples, ", options.repetitions, " repetitions of ",
        options.burst_ms, " ms, clock steps of ", options.nominal_step_ns, " ns: out of range"));
  }
  for (const LayerRange& range : options.ranges) {
    if (range.first_layer >= 0 && range.first_layer <= range.last_layer &&
        range.last_layer < model.layer_count())
      continue;
    return absl::InvalidArgumentError(absl::StrCat("profile of layers ", range.first_layer, " to ",
                                                   range.last_layer, ": ", model.name,
                                                   " has layers 0 to ", model.layer_count() - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckInFlight(const ProfileOptions& options) {
  if (!options.in_flight.empty() && options.in_flight.size() != options.ranges.size()) {
    return absl::InvalidArgumentError(absl::StrCat("profile of ", options.ranges.size(),
                                                   " ranges with micro-batches in flight for ",
                                                   options.in_flight.size()));
  }
  for (const int64_t in_flight : options.in_flight) {
    if (in_flight >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("profile with ", in_flight, " micro-batches in flight; needs at least 1"));
  }
  return absl::OkStatus();
}

// Facts of each range before it is measured.
struct RangeFacts {
  int64_t bytes = 0;       // about what its state takes: weights, versions in flight, gradients and
                           // momentum
  int64_t macs = 0;        // multiply-adds of one sample's forward
  int64_t parameters = 0;  // trainable elements
};

absl::StatusOr<std::vector<RangeFacts>> FactsOf(const ModelSpec& model, const Recipe& recipe,
                                                const std::vector<LayerRange>& ranges,
                                                const std::vector<std::optional<int64_t>>& flying) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  const NumberFormat& numbers = recipe.numbers;
  const auto parameter = static_cast<int64_t>(SizeOf(numbers.parameter));
  const auto gradient = static_cast<int64_t>(SizeOf(numbers.weight_gradient));
  std::vector<RangeFacts> facts(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t versions = flying[i].value_or(1);
    const int64_t each = parameter * (versions + (IsFloat(numbers.parameter) ? 1 : 0)) + gradient;
    for (int layer = ranges[i].first_layer; layer <= ranges[i].last_layer; ++layer) {
      const LayerInfo& info = infos[static_cast<size_t>(layer)];
      facts[i].macs += info.macs;
      facts[i].parameters += info.parameters;
      for (const StateTensorSpec& tensor : info.state)
        facts[i].bytes += tensor.shape.elements() * each;
    }
  }
  return facts;
}

// Number of samples that a range is measured on: fewer if all of them take long on this device, as
// earlier ranges have shown.
class SamplesToMeasure {
 public:
  explicit SamplesToMeasure(const ProfileOptions& options)
      : samples_(options.samples),
        fewer_(options.samples / kFewerSamplesFactor),
        long_ns_(options.enough_ms > 0 ? options.burst_ms * 1e6 * kLongRunBursts : 0) {}

  // For the first range fewer as a trial; a call after Learn may return all.
  int64_t Of(const RangeFacts& facts) const {
    if (long_ns_ <= 0 || fewer_ < kFewestSamples) return samples_;
    if (facts.macs * fewer_ < facts.parameters * kMacsPerParameter) return samples_;
    if (facts.macs == 0) return samples_;
    if (ns_per_mac_ <= 0) return fewer_;
    const auto macs = static_cast<double>(facts.macs * samples_);
    return macs * ns_per_mac_ >= long_ns_ ? fewer_ : samples_;
  }

  // A run of a range on so many samples took this long. The fastest range counts.
  void Learn(const RangeFacts& facts, int64_t samples, int64_t run_ns) {
    if (facts.macs == 0) return;
    const double each = static_cast<double>(run_ns) / static_cast<double>(facts.macs * samples);
    ns_per_mac_ = ns_per_mac_ > 0 ? std::min(ns_per_mac_, each) : each;
  }

 private:
  int64_t samples_;
  int64_t fewer_;
  double long_ns_;         // 0: all samples always
  double ns_per_mac_ = 0;  // 0: not known yet
};

// The end of the group of ranges, from `begin` on, that are measured in turns.
size_t EndOfTurns(const std::vector<LayerRange>& ranges,
                  const std::vector<std::optional<int64_t>>& in_flight,
                  const std::vector<RangeFacts>& facts, size_t begin) {
  int64_t layers = 0, bytes = 0;
  size_t end = begin;
  while (end < ranges.size() && end - begin < kTurns) {
    layers += in_flight[end].value_or(1) * (ranges[end].last_layer - ranges[end].first_layer + 1);
    bytes += facts[end].bytes;
    if (end > begin && (layers > kTurnLayers || bytes > kTurnBytes)) break;
    ++end;
  }
  return end;
}

// A range's stage after its first run.
absl::StatusOr<RangeStage> WarmStage(
    const std::function<absl::StatusOr<RangeStage>(int64_t samples)>& create,
    const RangeFacts& facts, const ProfileOptions& options, const Clock& clock,
    SamplesToMeasure& samples_to_measure) {
  const double long_ms = options.enough_ms > 0 ? options.burst_ms / kFewRuns : 0;
  for (;;) {
    const int64_t samples = samples_to_measure.Of(facts);
    RUNNEL_ASSIGN_OR_RETURN(RangeStage stage, create(samples));
    RUNNEL_ASSIGN_OR_RETURN(const int64_t run_ns,
                            stage.WarmUp(static_cast<int64_t>(long_ms * 1e6), clock));
    samples_to_measure.Learn(facts, samples, run_ns);
    // What the device has shown changes the choice at most once: from fewer samples to all.
    if (samples_to_measure.Of(facts) == samples) return stage;
  }
}

}  // namespace

absl::StatusOr<std::vector<RangeTime>> ProfileRanges(
    const ModelSpec& model, const Recipe& recipe, Backend& backend, const ProfileOptions& options,
    const Clock& clock, const std::function<void(double share)>& on_progress) {
  RUNNEL_RETURN_IF_ERROR(CheckOptions(model, options));
  RUNNEL_RETURN_IF_ERROR(CheckInFlight(options));
  const std::vector<LayerRange> ranges =
      options.ranges.empty() ? EachLayer(model.layer_count()) : options.ranges;
  std::vector<std::optional<int64_t>> in_flight(ranges.size());
  std::copy(options.in_flight.begin(), options.in_flight.end(), in_flight.begin());
  const auto burst_ns = static_cast<int64_t>(options.burst_ms * 1e6);
  const auto enough_ns = static_cast<int64_t>(options.enough_ms * 1e6);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<RangeFacts> facts,
                          FactsOf(model, recipe, ranges, in_flight));
  SamplesToMeasure samples_to_measure(options);
  std::vector<RangeTime> times;
  for (size_t begin = 0, end = 0; begin < ranges.size(); begin = end) {
    end = EndOfTurns(ranges, in_flight, facts, begin);
    BufferPool pool;
    std::vector<RangeStage> stages;
    for (size_t i = begin; i < end; ++i) {
      const auto create = [&](int64_t samples) {
        return RangeStage::Create(model, ranges[i], in_flight[i], recipe, backend, options, samples,
                                  pool);
      };
      RUNNEL_ASSIGN_OR_RETURN(RangeStage stage,
                              WarmStage(create, facts[i], options, clock, samples_to_measure));
      stages.push_back(std::move(stage));
    }
    for (int64_t turn = 0; turn < options.repetitions; ++turn) {
      for (size_t i = 0; i < stages.size(); ++i) {
        if (!stages[i].HasEnough(enough_ns)) {
          RUNNEL_RETURN_IF_ERROR(stages[i].Measure(burst_ns, options.nominal_step_ns, clock));
        }
        if (on_progress == nullptr) continue;
        const double turns = static_cast<double>(turn) +
                             static_cast<double>(i + 1) / static_cast<double>(stages.size());
        const double done =
            static_cast<double>(begin) +
            turns * static_cast<double>(stages.size()) / static_cast<double>(options.repetitions);
        on_progress(done / static_cast<double>(ranges.size()));
      }
    }
    for (RangeStage& stage : stages) times.push_back(stage.Result());
  }
  return times;
}

}  // namespace runnel
