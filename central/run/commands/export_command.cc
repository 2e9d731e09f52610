#include "absl/strings/str_cat.h"
#include "central/run/commands/commands.h"
#include "central/run/trained_weights.h"
#include "partition/export/npz_file.h"
#include "partition/export/onnx_model.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

absl::Status Write(const std::string& path, const std::string& bytes,
                   const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(path, {bytes}));
  context.print(absl::StrCat("wrote ", path, ", ", bytes.size(), " bytes"));
  return absl::OkStatus();
}

}  // namespace

absl::Status ExportCommand(const ExportArguments& arguments, const CommandContext& context) {
  if (arguments.onnx.empty() && arguments.npz.empty())
    return absl::InvalidArgumentError("give --onnx FILE, --npz FILE, or both");
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                          NewestWeights(arguments.checkpoint_dir, context.logger));
  RUNNEL_RETURN_IF_ERROR(MergePairs(checkpoint.model, checkpoint.state));
  if (!arguments.onnx.empty()) {
    const absl::StatusOr<std::string> bytes = ModelToOnnx(checkpoint.model, checkpoint.state);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--onnx ", arguments.onnx, ": recipe ",
                                                     checkpoint.settings.recipe, ": ",
                                                     bytes.status().message()));
    }
    RUNNEL_RETURN_IF_ERROR(Write(arguments.onnx, *bytes, context));
  }
  if (arguments.npz.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, StateToNpz(checkpoint.model, checkpoint.state));
  return Write(arguments.npz, bytes, context);
}

}  // namespace runnel
