#pragma once

// What the ends of links keep of the data set's samples (codecs that keep samples, compress/aqsgd.h):
// whether the run's data can be kept, and how much that is.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

// The most that an end keeps: states of twice as much travel in one message.
inline constexpr int64_t kMostKeptBytes = 800'000'000;

// A run whose links may have these codecs.
struct KeptSamples {
  const ModelSpec& model;
  const CodecSchedule& codecs;  // forward
  int64_t samples = 0;          // of the data set
};

// Bytes that an end keeps at most, whatever the cut, within kMostKeptBytes; 0: codecs keep nothing.
absl::StatusOr<int64_t> KeptStateBytes(const KeptSamples& run);

// InvalidArgument, one line: samples are not the same in every epoch (`augment` is not "off"; or
// the run is a session of learning, in which they get other places), or every boundary of the model
// would take more than kMostKeptBytes. OK where codecs keep nothing.
absl::Status CheckKeptSamples(const KeptSamples& run, const std::string& augment, bool is_session);

// InvalidArgument, one line, names a link of the plan whose ends would keep more than that, or says
// that all links together would keep more than twice that.
absl::Status CheckKeptSamples(const Plan& plan, const ModelSpec& model, int64_t samples);

}  // namespace runnel
