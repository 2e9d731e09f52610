#include "proto/base/training/rates/rate.h"

namespace runnel {

Rate ConstantRate() {
  return {.choice = {"constant", "--lr throughout"},
          .at = [](const TrainingSettings& settings, absl::Span<const double>, int64_t, int64_t) {
            return settings.learning_rate;
          }};
}

}  // namespace runnel
