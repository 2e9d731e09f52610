#include "central/planning/kept_samples.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/bit_schedule.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

int64_t MegabytesOf(int64_t bytes) { return bytes / 1'000'000; }

// By layer but the last, from which nothing is sent; empty: codecs keep nothing.
absl::StatusOr<std::vector<int64_t>> KeptByLayer(const KeptSamples& run) {
  std::vector<int64_t> bytes;
  RUNNEL_ASSIGN_OR_RETURN(const KeptBytesFn kept, MostKeptBytes(run.codecs));
  if (!kept) return bytes;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(run.model, 1));
  for (size_t i = 0; i + 1 < layers.size(); ++i)
    bytes.push_back(kept(layers[i].output, run.samples));
  return bytes;
}

absl::Status RefuseCodecs(const CodecSchedule& codecs, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--codec-forward ", codecs.text(), ": ", why));
}

}  // namespace

absl::StatusOr<int64_t> KeptStateBytes(const KeptSamples& run) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, KeptByLayer(run));
  if (bytes.empty()) return 0;
  return std::min(kMostKeptBytes, *std::max_element(bytes.begin(), bytes.end()));
}

absl::Status CheckKeptSamples(const KeptSamples& run, const std::string& augment, bool is_session) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, KeptByLayer(run));
  if (bytes.empty()) return absl::OkStatus();
  if (augment != "off") {
    return RefuseCodecs(
        run.codecs,
        absl::StrCat("sends how a sample differs from the epoch before, and --augment ", augment,
                     " makes another one of it: add --augment off, or take eden"));
  }
  if (is_session) {
    return RefuseCodecs(run.codecs,
                        "keeps samples by their places in the data set, which sessions of learning "
                        "change: take eden");
  }
  const int64_t least = *std::min_element(bytes.begin(), bytes.end());
  if (least <= kMostKeptBytes) return absl::OkStatus();
  return RefuseCodecs(run.codecs,
                      absl::StrCat("would keep ", MegabytesOf(least), " MB of ", run.samples,
                                   " samples at each end of a link, at most ",
                                   MegabytesOf(kMostKeptBytes), " are: take eden"));
}

absl::Status CheckKeptSamples(const Plan& plan, const ModelSpec& model, int64_t samples) {
  int64_t all = 0;
  for (size_t i = 0; i < plan.links.size(); ++i) {
    const CodecSchedule& codecs = plan.links[i].codec_forward;
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes,
                            KeptByLayer({model, codecs, samples}));
    const auto layer = static_cast<size_t>(plan.stages[i].last_layer);
    if (bytes.empty()) continue;
    if (bytes[layer] > kMostKeptBytes) {
      return RefuseCodecs(
          codecs, absl::StrCat("would keep ", MegabytesOf(bytes[layer]), " MB of ", samples,
                               " samples at each end of the link after layer ", layer, ", at most ",
                               MegabytesOf(kMostKeptBytes), " are: take eden"));
    }
    all += bytes[layer];
    // A check-point is one message.
    if (all <= 2 * kMostKeptBytes) continue;
    return RefuseCodecs(
        codecs, absl::StrCat("would keep ", MegabytesOf(all), " MB of ", samples, " samples on ",
                             i + 1, " links, at most ", MegabytesOf(2 * kMostKeptBytes),
                             " are in all: take fewer workers, or eden"));
  }
  return absl::OkStatus();
}

}  // namespace runnel
