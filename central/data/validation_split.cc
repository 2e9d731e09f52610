#include "central/data/validation_split.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/data/own/split.h"
#include "proto/base/random.h"

namespace runnel {

absl::StatusOr<DatasetSplits> HoldBackValidation(DatasetSplits data, double share, uint64_t seed) {
  const std::shared_ptr<const Dataset> all = std::move(data.train);
  if (all->new_samples() > 0)
    return absl::InvalidArgumentError("a session's latents are replayed as a whole");
  const bool has_classes = all->labels_per_sample() == 1;
  std::vector<std::vector<int64_t>> groups(has_classes ? static_cast<size_t>(all->classes())
                                                       : size_t{1});
  for (int64_t i = 0; i < all->size(); ++i)
    groups[has_classes ? static_cast<size_t>(all->label(i)) : 0].push_back(i);
  std::vector<int64_t> kept, held_back;
  for (size_t group = 0; group < groups.size(); ++group) {
    std::vector<int64_t>& indices = groups[group];
    const CounterRandom random(seed, RandomPurpose::kValidation, group, 0);
    for (size_t i = indices.size(); i > 1; --i)
      std::swap(indices[i - 1], indices[random.Below(i, static_cast<uint32_t>(i))]);
    const auto end = indices.begin() + std::llround(share * static_cast<double>(indices.size()));
    held_back.insert(held_back.end(), indices.begin(), end);
    kept.insert(kept.end(), end, indices.end());
  }
  if (kept.empty() || held_back.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("of ", all->size(),
                                                   " training samples that leaves none to ",
                                                   kept.empty() ? "train on" : "choose by"));
  }
  std::sort(kept.begin(), kept.end());
  std::sort(held_back.begin(), held_back.end());
  data.train = std::make_unique<data::Subset>(all, std::move(kept));
  data.validation = std::make_unique<data::Subset>(all, std::move(held_back));
  return data;
}

}  // namespace runnel
