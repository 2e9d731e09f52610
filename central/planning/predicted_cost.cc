#include "central/planning/predicted_cost.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "predictor/profiles/profile_folder.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<RunPredictor> MakeRunPredictor(const ModelSpec& model, int64_t micro_batch_size,
                                              const std::string& folder) {
  std::vector<KnownDevice> known;
  if (!folder.empty()) {
    absl::StatusOr<std::vector<DeviceProfile>> profiles = LoadProfiles(folder);
    if (!profiles.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--predictor-profiles: ", profiles.status().message()));
    }
    RUNNEL_ASSIGN_OR_RETURN(known, KnownDevices(*profiles, model));
  }
  return RunPredictor::Create(model, micro_batch_size, std::move(known));
}

}  // namespace runnel
