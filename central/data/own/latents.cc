// Latents of a session (central/data/latents/latent_set.h). Nothing is evaluated on them: the whole
// model is, on images.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/data/data_files.h"
#include "central/data/latents/latent_set.h"
#include "central/data/loaders.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

class LatentsDataset final : public Dataset {
 public:
  explicit LatentsDataset(std::shared_ptr<const LatentSet> set) : set_(std::move(set)) {}

  int64_t size() const override { return set_->size(); }
  const Shape& sample_shape() const override { return set_->shape(); }
  int64_t classes() const override { return set_->classes(); }
  void CopySample(int64_t index, absl::Span<float> out) const override { set_->Decode(index, out); }
  int32_t label(int64_t index) const override { return set_->labels()[static_cast<size_t>(index)]; }
  int64_t new_samples() const override { return set_->new_samples; }
  int64_t session() const override { return set_->session; }

 private:
  std::shared_ptr<const LatentSet> set_;
};

}  // namespace

absl::StatusOr<DatasetSplits> LoadLatents(absl::string_view path, uint64_t seed) {
  (void)seed;
  if (path.empty())
    return absl::InvalidArgumentError("--data latents:FILE: give a file that learn has written");
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, ReadText(std::string(path)));
  absl::StatusOr<LatentSet> parsed = LatentSet::Parse(bytes);
  if (!parsed.ok())
    return absl::Status(parsed.status().code(),
                        absl::StrCat(path, ": ", parsed.status().message()));
  const auto set = std::make_shared<const LatentSet>(*std::move(parsed));
  return DatasetSplits{std::make_unique<LatentsDataset>(set), std::make_unique<LatentsDataset>(set),
                       ""};
}

}  // namespace runnel::data
