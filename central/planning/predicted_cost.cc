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
  const absl::StatusOr<std::string> text = ReadText(path, kMaxMlpBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        text.status().message(), "; 'runnel-predictor train --profiles ", folder, "' writes it"));
  }
  RUNNEL_RETURN_IF_ERROR(text.status());
  absl::StatusOr<PredictorNetwork> network = ParseNetwork(*text);
  if (!network.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", network.status().message()));
  if (network->row != row.name || (network->model != model && network->model != "any")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is of predictor ", network->row, " for model ", network->model));
  }
  return network;
}

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
  RUNNEL_ASSIGN_OR_RETURN(PredictorKnowledge knowledge,
                          PredictorKnowledge::Create(model, micro_batch_size, std::move(known)));
  RUNNEL_ASSIGN_OR_RETURN(const PredictorRow* row, FindPredictor("mlp"));
  if (UsesNetwork(*row, knowledge)) {
    absl::StatusOr<PredictorNetwork> network = LoadNetwork(*row, model.name, folder);
    if (network.ok()) {
      knowledge.network = *std::move(network);
    } else if (absl::IsNotFound(network.status())) {
      RUNNEL_ASSIGN_OR_RETURN(row, FindPredictor("mixture"));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--predictor-profiles: ", network.status().message()));
    }
  }
  return RunPredictor::Create(row, std::move(knowledge));
}

}  // namespace runnel
