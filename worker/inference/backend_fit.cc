#include "worker/inference/backend_fit.h"

#include <memory>

#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/optimizer.h"
#include "proto/transport/control/model_convert.h"
#include "worker/out_of_memory.h"

namespace runnel {
namespace {

// As few as batch norm takes: a program of more samples has the same instructions.
constexpr int64_t kFitSamples = 2;

absl::Status TryBackend(const BackendRow& row, const ModelSpec& model, const Recipe& recipe,
                        const StagePrograms& programs, const BackendSettings& settings) {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, row.make(settings));
  RUNNEL_ASSIGN_OR_RETURN(const CompileOptions options,
                          CompileOptionsFor(backend->traits(), recipe, programs));
  RUNNEL_ASSIGN_OR_RETURN(const Program program, CompileStage(model, 0, model.layer_count() - 1,
                                                              kFitSamples, recipe, options));
  return backend->Prepare(program).status();
}

}  // namespace

absl::Status FitBackendsJob(const proto::FitBackends& asked, const BackendSettings& settings,
                            proto::InferenceReply& reply) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, FromProto(asked.model()));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(asked.recipe()));
  RUNNEL_ASSIGN_OR_RETURN(const OptimizerChoice choice, ParseOptimizer(asked.optimizer()));
  StagePrograms programs;
  programs.max_batch = kFitSamples;
  programs.accumulates = asked.accumulates();
  programs.optimizer = choice.optimizer;
  for (const BackendRow& row : BuiltinBackends()) {
    proto::BackendFit& fit = *reply.add_fits();
    fit.set_backend(std::string(row.name));
    const absl::Status able = OneLine(WithinMemory("it prepared the training", [&] {
      return TryBackend(row, model, *recipe, programs, settings);
    }));
    if (!able.ok()) fit.set_why_not(std::string(able.message()));
  }
  return absl::OkStatus();
}

}  // namespace runnel
