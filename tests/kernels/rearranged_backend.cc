#include "tests/kernels/rearranged_backend.h"

#include <algorithm>
#include <cstring>

#include "proto/base/model/number_format.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kPoison = 0xFF;

struct Rewritten {
  Program program;
  bool crosses_in_scratch = false;
  int64_t poison_offset = -1;  // of the scratch; -1: nothing is destroyed
};

class RearrangedExecutable final : public Executable {
 public:
  RearrangedExecutable(Rewritten rewritten, Backend& backend, SeenGradients* seen)
      : rewritten_(std::move(rewritten)), backend_(backend), seen_(seen) {}

  // The program lies still from here on.
  absl::Status Prepare() {
    RUNNEL_ASSIGN_OR_RETURN(executable_, backend_.Prepare(program()));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    Bindings own = bindings;
    RUNNEL_ASSIGN_OR_RETURN(
        Memory * scratch, AreaOf(bindings[Storage::kScratch], program().scratch_bytes, scratches_));
    own[Storage::kScratch] = scratch->address();
    const bool is_kept = part == Part::kWeightGradient ||
                         (part == Part::kInputGradient && rewritten_.crosses_in_scratch);
    if (!is_kept) {
      RUNNEL_RETURN_IF_ERROR(Fill(*scratch, 0));
    } else if (rewritten_.poison_offset >= 0) {
      RUNNEL_RETURN_IF_ERROR(Fill(*scratch, rewritten_.poison_offset));
    }
    if (bindings[Storage::kStash] != nullptr) {
      RUNNEL_ASSIGN_OR_RETURN(Memory * stash,
                              AreaOf(bindings[Storage::kStash], program().stash_bytes, stashes_));
      own[Storage::kStash] = stash->address();
      if (part == Part::kForward) RUNNEL_RETURN_IF_ERROR(Fill(*stash, 0));
    }
    FillWhatLeaves(part, own);
    FillGradients(part, context, own);
    RUNNEL_RETURN_IF_ERROR(executable_->Run(part, context, own));
    if (seen_ != nullptr && part == Part::kWeightGradient && HasGradients()) {
      seen_->bytes[{program().first_layer, program().batch}].emplace_back(
          reinterpret_cast<const char*>(own[Storage::kGradients]),
          static_cast<size_t>(program().state.gradient_bytes));
    }
    return absl::OkStatus();
  }

 private:
  using Areas = std::map<const std::byte*, std::unique_ptr<Memory>>;

  const Program& program() const { return rewritten_.program; }
  bool IsOfHost() const { return backend_.traits().memory == MemoryKind::kHost; }
  bool HasGradients() const { return IsOfHost() && !program().part(Part::kUpdate).empty(); }

  // The area that stands for what is bound there.
  absl::StatusOr<Memory*> AreaOf(const std::byte* bound, int64_t bytes, Areas& areas) {
    std::unique_ptr<Memory>& area = areas[bound];
    if (area == nullptr) {
      RUNNEL_ASSIGN_OR_RETURN(area, backend_.Allocate(std::max<int64_t>(bytes, 64)));
    }
    return area.get();
  }

  static absl::Status Fill(Memory& memory, int64_t from) {
    RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Of(memory, MapAccess::kReadWrite));
    std::memset(mapping.data() + from, kPoison, static_cast<size_t>(memory.bytes() - from));
    return absl::OkStatus();
  }

  // Values beside a boundary tensor are the executor's.
  void FillWhatLeaves(Part part, const Bindings& bindings) const {
    for (const Instruction& instruction : program().part(part)) {
      for (const BufferIndex output : instruction.outputs) {
        const Buffer& buffer = program().buffers[static_cast<size_t>(output)];
        if (buffer.storage != Storage::kOutput && buffer.storage != Storage::kInputGradient)
          continue;
        std::memset(bindings[buffer.storage] + buffer.offset_bytes, kPoison,
                    static_cast<size_t>(buffer.bytes()));
      }
    }
  }

  // What lies between tensors stays zero.
  void FillGradients(Part part, const StepContext& context, const Bindings& bindings) const {
    const Part first =
        program().early_weight_gradients ? Part::kInputGradient : Part::kWeightGradient;
    if (part != first || context.accumulate || !HasGradients()) return;
    for (const StateTensor& tensor : program().state.tensors) {
      if (tensor.storage != Storage::kParameters || !IsTrainable(tensor.spec.role)) continue;
      const int64_t bytes =
          tensor.spec.shape.elements() * static_cast<int64_t>(SizeOf(tensor.gradient_dtype));
      std::memset(bindings[Storage::kGradients] + tensor.gradient_offset_bytes, kPoison,
                  static_cast<size_t>(bytes));
    }
  }

  const Rewritten rewritten_;
  Backend& backend_;
  SeenGradients* const seen_;
  Areas scratches_, stashes_;  // by the address that the caller binds
  std::unique_ptr<Executable> executable_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executable>> RearrangedBackend::Prepare(const Program& program) {
  Rewritten rewritten = {program};
  if (options_.rewrite != nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(rewritten.program, options_.rewrite(program));
  }
  RUNNEL_ASSIGN_OR_RETURN(const ProgramValues values, FollowMemory(rewritten.program));
  rewritten.crosses_in_scratch = values.crosses_in_scratch;
  if (options_.boundaries != nullptr) {
    RUNNEL_ASSIGN_OR_RETURN(
        rewritten.program,
        PoisonDeadValues(rewritten.program, options_.boundaries(rewritten.program),
                         &rewritten.poison_offset));
  }
  auto executable = std::make_unique<RearrangedExecutable>(std::move(rewritten), backend_, seen_);
  RUNNEL_RETURN_IF_ERROR(executable->Prepare());
  return executable;
}

}  // namespace runnel
