#include "absl/strings/str_cat.h"
#include "central/records/quantized_model.h"
#include "central/run/commands/commands.h"
#include "central/run/commands/integer_nodes.h"
#include "central/run/run_setup.h"
#include "central/run/trained_weights.h"
#include "partition/export/npz_file.h"
#include "partition/export/onnx_model.h"
#include "partition/export/quantized_onnx.h"
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

// What engines and people find of the data set in the file; empty: nothing is known.
std::string DataProperty(const std::string& data_text) {
  return data_text.empty() ? "" : OnnxMetadata("runnel.data", data_text);
}

absl::Status InFile(const std::string& what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

absl::Status ExportIntegers(const ExportArguments& arguments, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(const QuantizedModel quantized, ReadQuantizedModel(arguments.quantized));
  const std::string where = absl::StrCat("quantised model ", arguments.quantized);
  RUNNEL_ASSIGN_OR_RETURN(const RunSetup setup, SetUpRun(WithoutTraining(quantized.settings)));
  RUNNEL_RETURN_IF_ERROR(CheckModel(quantized.model_sha256, setup, where));
  const absl::StatusOr<std::vector<IntegerNode>> nodes = IntegerNodes(quantized.graph);
  if (!nodes.ok()) return InFile(where, nodes.status());
  const absl::StatusOr<std::string> bytes =
      QuantizedToOnnx(setup.model.name, setup.model.input, *nodes, arguments.batch);
  if (!bytes.ok()) return InFile(where, bytes.status());
  return Write(arguments.onnx, *bytes + DataProperty(quantized.data_text), context);
}

absl::Status ExportCheckpoint(const ExportArguments& arguments, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                          NewestWeights(arguments.checkpoint_dir, context.logger));
  RUNNEL_RETURN_IF_ERROR(MergePairs(checkpoint.model, checkpoint.state));
  if (!arguments.onnx.empty()) {
    const absl::StatusOr<std::string> bytes =
        ModelToOnnx(checkpoint.model, checkpoint.state, arguments.batch);
    if (!bytes.ok()) {
      return InFile(
          absl::StrCat("--onnx ", arguments.onnx, ": recipe ", checkpoint.settings.recipe),
          bytes.status());
    }
    RUNNEL_RETURN_IF_ERROR(
        Write(arguments.onnx, *bytes + DataProperty(checkpoint.data_text), context));
  }
  if (arguments.npz.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, StateToNpz(checkpoint.model, checkpoint.state));
  return Write(arguments.npz, bytes, context);
}

}  // namespace

absl::Status ExportCommand(const ExportArguments& arguments, const CommandContext& context) {
  if (arguments.checkpoint_dir.empty() == arguments.quantized.empty()) {
    return absl::InvalidArgumentError(
        "export: give either --checkpoint-dir or --quantized, see runnel-central export --help");
  }
  if (arguments.onnx.empty() && arguments.npz.empty())
    return absl::InvalidArgumentError("give --onnx FILE, --npz FILE, or both");
  if (arguments.batch > 0 && arguments.onnx.empty())
    return absl::InvalidArgumentError("--batch needs --onnx: arrays of weights have no samples");
  if (arguments.quantized.empty()) return ExportCheckpoint(arguments, context);
  if (arguments.npz.empty()) return ExportIntegers(arguments, context);
  return absl::InvalidArgumentError(
      "--npz needs --checkpoint-dir: arrays of codes say nothing without their graph; take --onnx");
}

}  // namespace runnel
