#pragma once

// Tables that the policy `runnel` reads again and again while it searches, filled when first used.
// Stages are made of blocks: runs of layers that are never cut. One block a layer is exact; fewer
// blocks make a coarse search of a long model fast.

#include <cstdint>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include "partition/pipeline_model.h"
#include "partition/policies/range_maximum.h"

namespace runnel::policies {

// One state of the recurrence (runnel_search.h).
struct SearchLabel {
  double key = 0;          // minimised
  double round = 0;        // seconds of one micro-batch to the last stage and back
  double air[2] = {0, 0};  // seconds a micro-batch on each of the order's media
  int64_t cap = 0;
  int32_t last = 0;   // block
  int32_t below = 0;  // position of the link's codecs in LinksBehind; -1: no link
  int32_t next = 0;   // position of the next stage's label
};

// For one thread.
class SearchTables {
 public:
  // A link with one of the pairs of codecs that may be worth it: seconds, both ways together where
  // nothing else is said.
  struct Link {
    int codec = 0;
    double down_send = 0;
    double up_send = 0;
    double round = 0;
    double sender_codec = 0;
    double receiver_codec = 0;
    double sender_codes = 0;  // WaySeconds
    double receiver_codes = 0;
    double sender_takes = 0;
    double receiver_takes = 0;
    int64_t frame_bytes = 0;
    int64_t kept_bytes = 0;
  };
  // By block, the pairs of codecs that no other pair beats in everything.
  using Links = std::vector<std::vector<Link>>;
  struct Stages {
    std::vector<double> seconds;  // [first block * blocks + last block]
    bool grows = true;            // whether each added block makes it larger
  };

  // `model` must outlive it. ends: the last layer of each block, ascending to the last of all.
  // most_noise: links have no codecs with more. or_least: where all codecs have more, links have the
  // least noisy ones of that place.
  SearchTables(const PipelineModel& model, std::vector<int> ends,
               double most_noise = std::numeric_limits<double>::infinity(), bool or_least = false);
  SearchTables(const SearchTables&) = delete;

  const PipelineModel& model() const { return model_; }
  int blocks() const { return static_cast<int>(ends_.size()); }
  int EndOf(int block) const { return ends_[block]; }
  const Stages& StagesOf(int device);
  const Links& LinksBetween(int from, int to);
  // Blocks first..last; the links may be null.
  StageHold Hold(int first, int last, const Link* above, const Link* below) const;

  // Steps of recurrences so far, each a few nanoseconds: searches end after a number of them, so
  // that the same request always has the same answer.
  int64_t steps = 0;
  std::vector<SearchLabel> labels;  // room for one recurrence at a time
  std::vector<int32_t> counts;

 private:
  Links MakeLinks(int from, int to) const;
  double MostNoiseBehind(int layer) const;

  const PipelineModel& model_;
  std::vector<int> ends_;
  double most_noise_;
  bool or_least_;
  std::vector<LayerMemory> memory_;  // sums over the blocks before each one, and over all
  RangeMaximum working_;             // LayerMemory::working_bytes by block
  std::unordered_map<int, Stages> stages_;
  std::unordered_map<int64_t, Links> links_;
};

// One for each limit of the noise that is worth a search of its own, the noisiest first. The
// recurrence looks at times only: where links have time for any codec it takes the fewest bits. The
// last one has codecs for every place, whatever the budget.
using TablesByNoise = std::deque<SearchTables>;
TablesByNoise MakeTablesByNoise(const PipelineModel& model, const std::vector<int>& ends);
int64_t StepsOf(const TablesByNoise& tables);

// A block for every layer; or at most `most` of them, where the model is cut with least to send.
std::vector<int> AllEnds(const PipelineModel& model);
std::vector<int> CoarseEnds(const PipelineModel& model, int most);

}  // namespace runnel::policies
