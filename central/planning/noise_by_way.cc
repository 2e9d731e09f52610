#include "central/planning/noise_by_way.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/bandwidth_bits.h"
#include "compress/codec.h"

namespace runnel {
namespace {

// Measurements are of few micro-batches: none moves a plan's noise by more.
constexpr double kLeastRatio = 0.01;
// Of what a way was taken to add, where the others were measured to add nearly all.
constexpr double kLeastRest = 0.25;

const CodecId& CodecIn(const CodecSchedule& codecs, int64_t epoch) {
  return codecs.steps()[codecs.StepIn(epoch)].codec;
}

// Whether its encoder must see the gradients of what it has encoded.
bool NeedsGradients(const CodecId& codec) {
  const CodecRow* row = FindCodecFamily(codec.family);
  return row != nullptr && (row->learns || row->masks);
}

double RatioOf(double added, double by_table) {
  return std::clamp(added / by_table, kLeastRatio, 1 / kLeastRatio);
}

}  // namespace

std::vector<WayNoise> LossyWays(const Plan& plan, int64_t epoch, const NoisePlaces& places) {
  std::vector<WayNoise> ways;
  for (size_t i = 0; i < plan.links.size(); ++i) {
    const LinkPlan& link = plan.links[i];
    WayNoise way = {.link = static_cast<int>(i), .layer = plan.stages[i].last_layer};
    const auto noise = [&](Direction direction) {
      return NoiseByTable(link, direction, epoch, places.At(way.layer, direction));
    };
    const double down_noise = noise(Direction::kForward);
    const double up_noise = noise(Direction::kBackward);
    const auto add = [&](bool forward, bool backward, std::string codecs, double by_table) {
      way.forward = forward;
      way.backward = backward;
      way.codecs = std::move(codecs);
      way.by_table = by_table;
      if (by_table > 0) ways.push_back(way);
    };
    const CodecId& forward = CodecIn(link.codec_forward, epoch);
    const CodecId& backward = CodecIn(link.codec_backward, epoch);
    if (NeedsGradients(forward)) {
      add(true, true, absl::StrCat(forward.text(), " and ", backward.text()),
          down_noise + up_noise);
      continue;
    }
    add(true, false, forward.text(), down_noise);
    add(false, true, backward.text(), up_noise);
  }
  return ways;
}

bool AreSameWays(const std::vector<WayNoise>& a, const std::vector<WayNoise>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const WayNoise& one, const WayNoise& other) {
        return one.link == other.link && one.layer == other.layer && one.forward == other.forward &&
               one.backward == other.backward && one.codecs == other.codecs;
      });
}

bool HaveOtherCodecs(const std::vector<WayNoise>& before, const std::vector<WayNoise>& now) {
  const auto is_changed = [&before](const WayNoise& way) {
    bool was_exact = true;
    for (const WayNoise& other : before) {
      const bool is_same_way = (way.forward && other.forward) || (way.backward && other.backward);
      if (way.link != other.link || !is_same_way) continue;
      if (way.layer == other.layer && way.codecs != other.codecs) return true;
      was_exact = false;
    }
    return was_exact;
  };
  return std::any_of(now.begin(), now.end(), is_changed);
}

void ShareNoise(const NoiseRatios& before, NoiseMeasured& noise) {
  double sum = 0;
  for (WayNoise& way : noise.ways) {
    const Direction direction = way.forward ? Direction::kForward : Direction::kBackward;
    way.added = way.by_table * before.At(way.layer, direction);
    way.measured = noise.ways.size() == 1;
    sum += way.added;
  }
  for (WayNoise& way : noise.ways) way.added *= noise.added / sum;
}

void SetWayNoise(int way, double added, NoiseMeasured& noise) {
  WayNoise& one = noise.ways[static_cast<size_t>(way)];
  one.added = added;
  one.measured = true;
  double measured = 0, rest = 0;
  for (const WayNoise& other : noise.ways) (other.measured ? measured : rest) += other.added;
  if (rest <= 0) return;
  const double scale = std::max(noise.added - measured, kLeastRest * rest) / rest;
  for (WayNoise& other : noise.ways) {
    if (!other.measured) other.added *= scale;
  }
}

std::optional<int> NextWay(const NoiseMeasured& noise, const std::set<int>& skipped) {
  std::optional<int> next;
  for (size_t i = 0; i < noise.ways.size(); ++i) {
    if (noise.ways[i].measured || skipped.contains(static_cast<int>(i))) continue;
    if (!next.has_value() || noise.ways[i].added > noise.ways[static_cast<size_t>(*next)].added)
      next = static_cast<int>(i);
  }
  return next;
}

CodedWays CodedIn(const WayNoise& way) { return {way.link, way.forward, way.backward}; }

NoiseRatios NoiseRatiosOf(const NoiseMeasured& noise) {
  NoiseRatios ratios = {.all = RatioOf(noise.added, noise.by_table)};
  for (const WayNoise& way : noise.ways) {
    if (way.by_table <= 0) continue;
    const double ratio = RatioOf(way.added, way.by_table);
    if (way.forward) ratios.forward[way.layer] = ratio;
    if (way.backward) ratios.backward[way.layer] = ratio;
  }
  return ratios;
}

std::string ToString(const WayNoise& way) {
  const int above = way.forward ? way.link : way.link + 1;
  const int below = way.forward ? way.link + 1 : way.link;
  if (way.forward && way.backward)
    return absl::StrCat(way.codecs, " between stages ", above, " and ", below);
  return absl::StrCat(way.codecs, " from stage ", above, " to ", below);
}

}  // namespace runnel
