#include "proto/base/training/dials/dials.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/dials/precision.h"

namespace runnel {

absl::Span<const Dial> Dials() {
  static constexpr Dial kDials[] = {
      {kGradientBitsDial, "gradient bits", CheckGradientBitsValue},
      {kLossScaleDial, "loss scale", CheckLossScaleValue},
      {kPrecisionDial, "precision level", CheckPrecisionValue},
      {kBarrierEveryDial, "steps between barriers", CheckBarrierEveryValue},
      {kCostTargetDial, "cost target level", CheckCostLevelValue},
  };
  return kDials;
}

absl::StatusOr<const Dial*> FindDial(absl::string_view name) {
  for (const Dial& dial : Dials()) {
    if (dial.name == name) return &dial;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dial '", name, "' is not known; dials: ",
      absl::StrJoin(Dials(), ", ",
                    [](std::string* out, const Dial& dial) { absl::StrAppend(out, dial.name); })));
}

}  // namespace runnel
