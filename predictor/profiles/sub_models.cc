#include "predictor/profiles/sub_models.h"

#include <algorithm>
#include <set>

#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct Candidate {
  int64_t macs = 0;
  LayerRange range;

  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.macs != b.macs ? a.macs < b.macs : a.range < b.range;
  }
};

absl::StatusOr<std::vector<Candidate>> Candidates(const ModelSpec& model, int64_t max_macs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(model, 1));
  std::vector<Candidate> candidates;
  for (int first = 0; first < model.layer_count(); ++first) {
    int64_t macs = 0;
    for (int last = first; last < model.layer_count(); ++last) {
      macs += layers[last].macs;
      if (macs > max_macs && last > first) break;
      candidates.push_back({macs, {first, last}});
    }
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> RepresentativeRanges(const ModelSpec& model,
                                                             int64_t max_macs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(model, max_macs));
  std::vector<LayerRange> ranges;
  for (size_t k = 0; k < kRepresentatives; ++k) {
    ranges.push_back(candidates[k * (candidates.size() - 1) / (kRepresentatives - 1)].range);
  }
  return ranges;
}

absl::StatusOr<std::vector<LayerRange>> ProfileSample(const ModelSpec& model, int64_t max_macs,
                                                      int extra, uint64_t seed) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerRange> representatives,
                          RepresentativeRanges(model, max_macs));
  std::set<LayerRange> chosen(representatives.begin(), representatives.end());
  for (int layer = 0; layer < model.layer_count(); ++layer) chosen.insert({layer, layer});
  RUNNEL_ASSIGN_OR_RETURN(std::vector<Candidate> rest, Candidates(model, max_macs));
  rest.erase(std::remove_if(rest.begin(), rest.end(),
                            [&](const Candidate& c) { return chosen.count(c.range) > 0; }),
             rest.end());
  const CounterRandom random(seed, RandomPurpose::kShuffle, 0, 0);
  for (uint64_t draw = 0; extra > 0 && !rest.empty(); ++draw, --extra) {
    const uint32_t index = random.Below(draw, static_cast<uint32_t>(rest.size()));
    chosen.insert(rest[index].range);
    rest.erase(rest.begin() + index);
  }
  return std::vector<LayerRange>(chosen.begin(), chosen.end());
}

}  // namespace runnel
