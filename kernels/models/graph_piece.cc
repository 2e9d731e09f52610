#include "kernels/models/graph_piece.h"

#include <cstring>
#include <map>
#include <utility>

#include "kernels/backends/host/host_memory.h"
#include "kernels/backends/tells_ways.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

// Batch sizes whose programs are kept: a full one and what is left at the end, each in training and
// test sets of a run.
constexpr size_t kMaxPrograms = 4;

// As Bindings ask for it. A backend whose products make codes computes on the host and reads its
// input once, wherever that lies.
bool FitsBindings(const GraphOptions& options, const void* at) {
  const uintptr_t alignment = options.codes_in_products ? alignof(float) : 64;
  return reinterpret_cast<uintptr_t>(at) % alignment == 0;
}

absl::StatusOr<std::unique_ptr<Memory>> Upload(Backend& backend,
                                               const std::vector<std::byte>& bytes) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory,
                          backend.Allocate(static_cast<int64_t>(bytes.size())));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Of(*memory, MapAccess::kReadWrite));
  std::memcpy(mapping.data(), bytes.data(), bytes.size());
  return memory;
}

// Sums or logits, which lie channels first, to logits, which lie last.
template <typename T>
void FinishLogits(const Int8Node& n, int64_t batch, const std::byte* from, float* logits) {
  const T* sums = reinterpret_cast<const T*>(from);
  const auto channels = static_cast<int64_t>(n.logit_scales.size());
  const int64_t positions = n.node.outputs() / channels;
  for (int64_t b = 0; b < batch; ++b, logits += n.node.outputs()) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < positions; ++p) {
        logits[p * channels + c] = static_cast<float>(*sums++ * n.logit_scales[c]);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::byte*> Room::Of(int64_t bytes) {
  if (memory_ == nullptr || memory_->bytes() < bytes) {
    RUNNEL_ASSIGN_OR_RETURN(memory_, AllocateHostMemory(bytes));
  }
  return memory_->address();
}

int64_t ValueBytes(const Int8Graph& graph, size_t node, int64_t batch) {
  const bool is_samples = node == 0 && !graph.takes_codes;
  const bool is_float = is_samples || graph.nodes[node].gives_logits();
  return batch * graph.nodes[node].node.outputs() *
         static_cast<int64_t>(is_float ? sizeof(float) : sizeof(int8_t));
}

absl::StatusOr<GraphPiece> GraphPiece::Make(const Int8Graph& graph, Backend& backend,
                                            std::vector<size_t> given, size_t output) {
  GraphPiece piece(graph, backend, std::move(given), output);
  const BackendTraits traits = backend.traits();
  piece.options_ = {traits.codes_in_products, traits.delays_products};
  piece.is_whole_ = traits.codes_in_products || traits.delays_products;
  RUNNEL_ASSIGN_OR_RETURN(const GraphProgram made, piece.Compile(1));
  RUNNEL_ASSIGN_OR_RETURN(piece.parameters_, Upload(backend, made.parameters));
  return piece;
}

absl::StatusOr<GraphProgram> GraphPiece::Compile(int64_t batch) const {
  return CompileGraph(*graph_, batch, given_, output_, options_);
}

absl::StatusOr<GraphPiece::Prepared*> GraphPiece::PreparedFor(int64_t batch) {
  absl::StatusOr<Prepared*> prepared = Prepare(batch);
  if (prepared.ok() || !absl::IsResourceExhausted(prepared.status()) || prepared_.empty())
    return prepared;
  // Those of other batch sizes have what is missing.
  prepared_.clear();
  return Prepare(batch);
}

absl::StatusOr<GraphPiece::Prepared*> GraphPiece::Prepare(int64_t batch) {
  const auto found = prepared_.find(batch);
  if (found != prepared_.end()) return found->second.get();
  // The one that was made last is kept: it has what is packed of the weights.
  if (prepared_.size() == kMaxPrograms) prepared_.erase(prepared_.begin(), --prepared_.end());
  auto prepared = std::make_unique<Prepared>();
  RUNNEL_ASSIGN_OR_RETURN(prepared->made, Compile(batch));
  prepared->made.parameters = {};  // uploaded
  Program& program = prepared->made.program;
  if (is_whole_) program.constants = parameters_->address();
  RUNNEL_ASSIGN_OR_RETURN(prepared->scratch, backend_->Allocate(program.scratch_bytes));
  RUNNEL_ASSIGN_OR_RETURN(prepared->executable, backend_->Prepare(program));
  return (prepared_[batch] = std::move(prepared)).get();
}

int64_t GraphPiece::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [batch, prepared] : prepared_) bytes += prepared->executable->memory_bytes();
  return bytes;
}

bool GraphPiece::has_winograd() const {
  for (const auto& [batch, prepared] : prepared_) {
    const auto* ways = dynamic_cast<const TellsWays*>(prepared->executable.get());
    for (const Instruction& instruction : prepared->made.program.part(Part::kForwardEval)) {
      if (instruction.winograd && (ways == nullptr || ways->IsWinograd(instruction))) return true;
    }
  }
  return false;
}

// What Storage::kInput is bound to.
absl::StatusOr<const std::byte*> GraphPiece::Give(
    const GraphProgram& made, int64_t batch,
    absl::FunctionRef<const std::byte*(size_t node)> values) {
  if (made.given.size() == 1) {
    const std::byte* only = values(made.given[0].node);
    if (FitsBindings(options_, only)) return only;
  }
  RUNNEL_ASSIGN_OR_RETURN(std::byte * area, input_area_.Of(made.program.input_bytes));
  for (const GivenValue& value : made.given) {
    std::memcpy(area + value.offset_bytes, values(value.node),
                static_cast<size_t>(ValueBytes(*graph_, value.node, batch)));
  }
  return area;
}

absl::Status GraphPiece::Run(int64_t batch, absl::FunctionRef<const std::byte*(size_t node)> values,
                             std::byte* to) {
  RUNNEL_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(batch));
  const GraphProgram& made = prepared->made;
  std::byte* result = to;
  if (made.output != DType::kInt8 || !FitsBindings(options_, to)) {
    RUNNEL_ASSIGN_OR_RETURN(result, output_area_.Of(made.program.output_bytes));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::byte* given, Give(made, batch, values));
  Bindings bindings;
  bindings[Storage::kInput] = const_cast<std::byte*>(given);
  bindings[Storage::kOutput] = result;
  bindings[Storage::kParameters] = parameters_->address();
  bindings[Storage::kScratch] = prepared->scratch->address();
  const auto run = [&] {
    return prepared->executable->Run(Part::kForwardEval, StepContext{}, bindings);
  };
  absl::Status ran = run();
  if (absl::IsResourceExhausted(ran) && prepared_.size() > 1) {
    // A first run asks for room too: others' goes, as in PreparedFor.
    std::erase_if(prepared_, [&](const auto& other) { return other.first != batch; });
    ran = run();
  }
  RUNNEL_RETURN_IF_ERROR(ran);
  const Int8Node& n = graph_->nodes[output_];
  auto* logits = reinterpret_cast<float*>(to);
  if (made.output == DType::kInt32) {
    FinishLogits<int32_t>(n, batch, result, logits);
  } else if (made.output == DType::kFloat32) {
    FinishLogits<float>(n, batch, result, logits);
  } else if (result != to) {
    std::memcpy(to, result, static_cast<size_t>(batch * n.node.outputs()));
  }
  return absl::OkStatus();
}

}  // namespace runnel::inference
