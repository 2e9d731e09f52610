#include "central/run/small_batches.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// With fewer samples the statistics of batch norms are poor: MobileNetV2, fine-tuned on CIFAR-10,
// learned 10 points less from micro-batches of 8 samples than from 32.
constexpr int64_t kFewSamples = 16;

}  // namespace

std::string SmallBatchNote(const ModelSpec& model, const TrainingSettings& training) {
  if (training.micro_batches < 2) return "";
  const int64_t samples = training.batch_size / training.micro_batches;
  if (samples >= kFewSamples) return "";
  for (int layer = model.frozen_front(); layer < model.layer_count(); ++layer) {
    for (const OpSpec& op : model.layers[static_cast<size_t>(layer)].ops) {
      if (op.kind != OpKind::kBatchNorm) continue;
      return absl::StrCat("batch norms see micro-batches of ", samples,
                          " samples; with --micro-batches 1 or a larger --batch-size the model "
                          "learns better");
    }
  }
  return "";
}

}  // namespace runnel
