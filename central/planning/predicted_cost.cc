#include "central/planning/predicted_cost.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "predictor/profiles/profile_folder.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<PredictorNetwork> LoadNetwork(const PredictorRow& row, const std::string& model,
                                             const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", row.network_file(model));
  const absl::StatusOr<std::string> text = ReadText(path, kMaxNetworkBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(text.status().message(),
                                            "; 'runnel-predictor train --profiles ", folder,
                                            "' writes it, --predictor mixture needs none"));
  }
  RUNNEL_RETURN_IF_ERROR(text.status());
  absl::StatusOr<PredictorNetwork> network = ParseNetwork(*text);
  if (!network.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", network.status().message()));
  if (network->row != row.network || (network->model != model && network->model != "any")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is of predictor ", network->row, " for model ", network->model));
  }
  return network;
}

absl::StatusOr<RunPredictor> MakeRunPredictor(const ModelSpec& model, int64_t micro_batch_size,
                                              const std::string& predictor,
                                              const std::string& folder) {
  const auto wrong = [](absl::string_view flag, const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(flag, status.message()));
  };
  const absl::StatusOr<const PredictorRow*> found = FindPredictor(predictor);
  if (!found.ok()) return wrong("--", found.status());
  const PredictorRow* row = *found;
  std::vector<KnownDevice> known;
  if (!folder.empty()) {
    const absl::StatusOr<std::vector<DeviceProfile>> profiles = LoadProfiles(folder);
    if (!profiles.ok()) return wrong("--predictor-profiles: ", profiles.status());
    RUNNEL_ASSIGN_OR_RETURN(known, KnownDevices(*profiles, model));
  }
  RUNNEL_ASSIGN_OR_RETURN(PredictorKnowledge knowledge,
                          PredictorKnowledge::Create(model, micro_batch_size, std::move(known)));
  if (UsesNetwork(*row, knowledge)) {
    absl::StatusOr<PredictorNetwork> network = LoadNetwork(*row, model.name, folder);
    if (!network.ok())
      return wrong(absl::StrCat("--predictor ", predictor, ": "), network.status());
    knowledge.network = *std::move(network);
  }
  absl::StatusOr<RunPredictor> made = RunPredictor::Create(row, std::move(knowledge));
  if (made.ok() || !absl::IsInvalidArgument(made.status())) return made;
  return wrong("--", made.status());
}

}  // namespace runnel
