#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/zoo/models.h"
#include "partition/zoo/zoo.h"

namespace runnel {

absl::Span<const ModelRow> BuiltinModels() {
  static constexpr ModelRow kRows[] = {
      {"lenet", "LeNet without biases, 6 layers, 1x28x28 (NITI, Mandheling)", "synthetic_digits",
       zoo::LeNet},
      {"har_cnn", "CNN for activity recognition, 5 layers, 9x128 (FTPipeHD, AccEPT)",
       "synthetic_har", zoo::HarCnn},
      {"mobilenet_v2", "MobileNetV2, 20 layers, 3x32x32, stride 2 at the front (AccEPT)", "cifar10",
       zoo::MobileNetV2},
      {"mobilenet_v2_s1", "MobileNetV2, 20 layers, 3x32x32, stride 1 at the front (FracTrain)",
       "cifar10", zoo::MobileNetV2S1},
  };
  return kRows;
}

absl::StatusOr<ModelSpec> MakeModel(absl::string_view name) {
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return row.make();
  }
  return absl::InvalidArgumentError(absl::StrCat("model '", name, "' is not known; there are ",
                                                 absl::StrJoin(ModelNames(), ", ")));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ModelRow& row : BuiltinModels()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
