#include "partition/policies/runnel_tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace runnel::policies {
namespace {

bool IsNoWorse(const SearchTables::Link& a, const SearchTables::Link& b) {
  return a.down_send <= b.down_send && a.up_send <= b.up_send && a.round <= b.round &&
         a.sender_codec <= b.sender_codec && a.receiver_codec <= b.receiver_codec &&
         a.sender_codes <= b.sender_codes && a.receiver_codes <= b.receiver_codes &&
         a.sender_takes <= b.sender_takes && a.receiver_takes <= b.receiver_takes &&
         a.frame_bytes <= b.frame_bytes && a.kept_bytes <= b.kept_bytes;
}

SearchTables::Link LinkWith(const PipelineModel& model, int codec, int layer, int from, int to) {
  const WaySeconds down = WayCost(model, codec, layer, from, to, Direction::kForward);
  const WaySeconds up = WayCost(model, codec, layer, from, to, Direction::kBackward);
  return {codec,
          down.send,
          up.send,
          down.total() + up.total(),
          down.encode + up.decode,
          down.decode + up.encode,
          down.sender_codes + up.receiver_codes,
          down.receiver_codes + up.sender_codes,
          down.sender_takes + up.receiver_takes,
          down.receiver_takes + up.sender_takes,
          model.codecs[codec].down_bytes[layer] +
              (layer < model.frozen_front ? 0 : model.codecs[codec].up_bytes[layer]),
          model.codecs[codec].KeptBytes(layer)};
}

}  // namespace

SearchTables::SearchTables(const PipelineModel& model, std::vector<int> ends, double most_noise,
                           bool or_least)
    : model_(model), ends_(std::move(ends)), most_noise_(most_noise), or_least_(or_least) {
  memory_.emplace_back();
  int layer = 0;
  for (const int end : ends_) {
    memory_.push_back(memory_.back());
    int64_t working_bytes = 0;
    for (; layer <= end; ++layer) {
      memory_.back() += model.memory[layer];
      working_bytes = std::max(working_bytes, model.memory[layer].working_bytes);
    }
    working_.Add(working_bytes);
  }
}

const SearchTables::Stages& SearchTables::StagesOf(int device) {
  const auto [at, is_new] = stages_.try_emplace(device);
  Stages& stages = at->second;
  if (!is_new) return stages;
  const int blocks = this->blocks();
  stages.seconds.resize(static_cast<size_t>(blocks) * blocks);
  for (int first = 0; first < blocks; ++first) {
    double before = 0;
    for (int last = first; last < blocks; ++last) {
      const double seconds =
          ComputeSeconds(model_, device, first > 0 ? ends_[first - 1] + 1 : 0, ends_[last]);
      stages.seconds[first * blocks + last] = seconds;
      stages.grows = stages.grows && seconds >= before;
      before = seconds;
    }
  }
  steps += static_cast<int64_t>(blocks) * blocks;
  return stages;
}

double SearchTables::MostNoiseBehind(int layer) const {
  if (!or_least_) return most_noise_;
  double least = std::numeric_limits<double>::infinity();
  for (const CodecCost& codec : model_.codecs) least = std::min(least, codec.NoiseBehind(layer));
  return std::max(most_noise_, least);
}

SearchTables::Links SearchTables::MakeLinks(int from, int to) const {
  Links links(ends_.size());
  for (size_t block = 0; block + 1 < ends_.size(); ++block) {
    std::vector<Link>& worth = links[block];
    const double most_noise = MostNoiseBehind(ends_[block]);
    for (size_t codec = 0; codec < model_.codecs.size(); ++codec) {
      if (model_.codecs[codec].NoiseBehind(ends_[block]) > most_noise) continue;
      const Link link = LinkWith(model_, static_cast<int>(codec), ends_[block], from, to);
      const auto beats = [&link](const Link& other) { return IsNoWorse(other, link); };
      if (std::any_of(worth.begin(), worth.end(), beats)) continue;
      std::erase_if(worth, [&link](const Link& other) { return IsNoWorse(link, other); });
      worth.push_back(link);
    }
  }
  return links;
}

const SearchTables::Links& SearchTables::LinksBetween(int from, int to) {
  const int64_t key = static_cast<int64_t>(from) * static_cast<int64_t>(model_.devices.size()) + to;
  const auto [at, is_new] = links_.try_emplace(key);
  if (is_new) {
    at->second = MakeLinks(from, to);
    steps += static_cast<int64_t>(ends_.size() * model_.codecs.size()) * 8;
  }
  return at->second;
}

StageHold SearchTables::Hold(int first, int last, const Link* above, const Link* below) const {
  StageHold hold;
  const LayerMemory& before = memory_[first];
  const LayerMemory& with = memory_[last + 1];
  hold.layers = {with.state_bytes - before.state_bytes,
                 with.version_bytes - before.version_bytes,
                 with.stash_bytes - before.stash_bytes,
                 with.copy_bytes - before.copy_bytes,
                 working_.Between(first, last),
                 PassesGradient(model_, first == 0 ? 0 : ends_[first - 1] + 1)
                     ? with.between_bytes - before.between_bytes
                     : 0};
  hold.input_bytes = first == 0 ? model_.input_bytes : model_.raw_bytes[ends_[first - 1]];
  hold.frame_bytes =
      (above != nullptr ? above->frame_bytes : 0) + (below != nullptr ? below->frame_bytes : 0);
  hold.kept_bytes =
      (above != nullptr ? above->kept_bytes : 0) + (below != nullptr ? below->kept_bytes : 0);
  return hold;
}

TablesByNoise MakeTablesByNoise(const PipelineModel& model, const std::vector<int>& ends) {
  std::vector<double> noises;
  for (const CodecCost& codec : model.codecs) {
    // Behind the last end there is no link.
    for (size_t block = 0; block + 1 < ends.size(); ++block) {
      const double noise = codec.NoiseBehind(ends[block]);
      if (noise <= model.noise_budget) noises.push_back(noise);
    }
  }
  if (noises.empty()) noises.push_back(0);
  std::sort(noises.begin(), noises.end(), std::greater<>());
  noises.erase(std::unique(noises.begin(), noises.end()), noises.end());
  TablesByNoise tables;
  const size_t most = noises.size() - 1;
  // What all links may have at once; without a budget the middle.
  size_t alike = (most + 1) / 2;
  if (std::isfinite(model.noise_budget)) {
    const auto links =
        static_cast<double>(std::min<size_t>(model.devices.size(), model.raw_bytes.size())) - 1;
    const auto fits = [&](double noise) { return noise * links <= model.noise_budget; };
    alike =
        std::min<size_t>(most, std::find_if(noises.begin(), noises.end(), fits) - noises.begin());
  }
  for (size_t i = 0; i < noises.size(); ++i) {
    // Single links get what lies between when a plan is improved.
    if (i == 0 || i == most || i == alike) tables.emplace_back(model, ends, noises[i], i == most);
  }
  return tables;
}

int64_t StepsOf(const TablesByNoise& tables) {
  int64_t steps = 0;
  for (const SearchTables& one : tables) steps += one.steps;
  return steps;
}

std::vector<int> AllEnds(const PipelineModel& model) {
  std::vector<int> ends(model.layers());
  std::iota(ends.begin(), ends.end(), 0);
  return ends;
}

std::vector<int> CoarseEnds(const PipelineModel& model, int most) {
  const int layers = model.layers();
  if (layers <= most) return AllEnds(model);
  // Blocks alike in time on the first device, each cut where the least is sent near its end.
  std::vector<int> ends;
  const double all = ComputeSeconds(model, 0, 0, layers - 1);
  int first = 0;
  for (int block = 1; block < most && first + (most - block) < layers; ++block) {
    int end = first;
    while (end + 1 + (most - block) < layers &&
           ComputeSeconds(model, 0, 0, end + 1) <= all * block / most) {
      ++end;
    }
    const int from = std::max(first, end - layers / most / 2);
    const auto least =
        std::min_element(model.raw_bytes.begin() + from, model.raw_bytes.begin() + end + 1);
    ends.push_back(static_cast<int>(least - model.raw_bytes.begin()));
    first = ends.back() + 1;
  }
  ends.push_back(layers - 1);
  return ends;
}

}  // namespace runnel::policies
