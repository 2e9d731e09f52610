#include "central/planning/predicted_cost.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "predictor/profiles/profile_folder.h"
#include "proto/base/batching.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<RunPredictor> MakeRunPredictor(const RunSetup& setup) {
  std::vector<KnownDevice> known;
  const std::string& folder = setup.settings.predictor_profiles;
  if (!folder.empty()) {
    absl::StatusOr<std::vector<DeviceProfile>> profiles = LoadProfiles(folder);
    if (profiles.ok()) {
      RUNNEL_ASSIGN_OR_RETURN(known, KnownDevices(*profiles, setup.model));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--predictor-profiles: ", profiles.status().message()));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup.training));
  return RunPredictor::Create(setup.model, batching.MicroBatchSizes().front(), std::move(known));
}

}  // namespace runnel
