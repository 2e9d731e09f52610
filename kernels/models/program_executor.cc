#include "kernels/models/program_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/host/host_memory.h"
#include "kernels/models/graph_program.h"
#include "kernels/models/int8_executor.h"
#include "kernels/models/product/real_conv.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

using Clock = std::chrono::steady_clock;

// Batch sizes whose programs are kept: a full one and what is left at the end, each in training and
// test sets of a run.
constexpr size_t kMaxPrograms = 4;
constexpr uintptr_t kAlignment = 64;

bool IsAligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % kAlignment == 0; }

// Aligned memory of the host that only grows.
class Room {
 public:
  absl::StatusOr<std::byte*> Of(int64_t bytes) {
    if (memory_ == nullptr || memory_->bytes() < bytes) {
      RUNNEL_ASSIGN_OR_RETURN(memory_, AllocateHostMemory(bytes));
    }
    return memory_->address();
  }

 private:
  std::unique_ptr<Memory> memory_;
};

// A program made ready, with what it computes in.
struct Prepared {
  GraphProgram made;
  std::unique_ptr<Memory> scratch;
  std::unique_ptr<Executable> executable;

  static absl::StatusOr<std::unique_ptr<Prepared>> Of(GraphProgram made, Backend& backend) {
    auto prepared = std::make_unique<Prepared>();
    prepared->made = std::move(made);
    const Program& program = prepared->made.program;
    RUNNEL_ASSIGN_OR_RETURN(prepared->scratch, backend.Allocate(program.scratch_bytes));
    RUNNEL_ASSIGN_OR_RETURN(prepared->executable, backend.Prepare(program));
    return prepared;
  }
  absl::Status Run(const Memory& parameters, const std::byte* input, std::byte* output) {
    Bindings bindings;
    bindings[Storage::kInput] = const_cast<std::byte*>(input);
    bindings[Storage::kOutput] = output;
    bindings[Storage::kParameters] = parameters.address();
    bindings[Storage::kScratch] = scratch->address();
    return executable->Run(Part::kForwardEval, StepContext{}, bindings);
  }
};

absl::StatusOr<std::unique_ptr<Memory>> Upload(Backend& backend,
                                               const std::vector<std::byte>& bytes) {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory,
                          backend.Allocate(static_cast<int64_t>(bytes.size())));
  RUNNEL_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Of(*memory, MapAccess::kReadWrite));
  std::memcpy(mapping.data(), bytes.data(), bytes.size());
  return memory;
}

// Median of so many calls, after one that does not count.
template <typename RunFn>
absl::StatusOr<double> MedianSeconds(int passes, const RunFn& run) {
  std::vector<double> seconds;
  for (int pass = 0; pass <= passes; ++pass) {
    const Clock::time_point start = Clock::now();
    RUNNEL_RETURN_IF_ERROR(run());
    if (pass > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

class ProgramExecutor final : public GraphExecutor {
 public:
  ProgramExecutor(const Int8Graph& graph, Backend& backend, std::unique_ptr<Backend> owned)
      : graph_(graph), owned_(std::move(owned)), backend_(backend), last_(graph.nodes.size() - 1) {}

  absl::Status Prepare() {
    given_ = {0};
    for (size_t i = 1; i <= last_; ++i) {
      if (!graph_.nodes[i].is_real() || graph_.nodes[i].node.inputs[0] != 0) continue;
      given_.push_back(i);
      AddReal(i);
    }
    end_ = last_;
    if (graph_.nodes[last_].is_real() && reals_.count(last_) == 0) {
      AddReal(last_);
      end_ = graph_.nodes[last_].node.inputs[0];
    }
    if (reals_.count(end_) > 0) return absl::OkStatus();  // all of it is the host's
    RUNNEL_ASSIGN_OR_RETURN(const GraphProgram made, Compile(graph_, 1, given_, end_));
    RUNNEL_ASSIGN_OR_RETURN(parameters_, Upload(backend_, made.parameters));
    return absl::OkStatus();
  }

  std::string description() const override { return backend_.description(); }
  std::string kernel(size_t node) const override;
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch,
                   absl::Span<std::byte> output) override;
  absl::StatusOr<std::vector<double>> TimeNodes(absl::Span<const std::byte> input, int64_t batch,
                                                int passes) override;

 private:
  // NHWC codes of a node and, where it gives logits, those.
  struct Result {
    int8_t* codes = nullptr;
    float* logits = nullptr;
  };

  void AddReal(size_t node) {
    reals_.emplace(node, RealConv(graph_, node, CodeLoopsFor(cpu::BestInt8Kernels().isa)));
  }
  absl::StatusOr<GraphProgram> Compile(const Int8Graph& graph, int64_t batch,
                                       absl::Span<const size_t> given, size_t output) const {
    return CompileGraph(graph, batch, given, output, backend_.traits().delays_products);
  }
  int64_t outputs(size_t node) const { return graph_.nodes[node].node.outputs(); }

  absl::StatusOr<Prepared*> PreparedFor(int64_t batch);
  void RunReal(size_t node, const std::byte* from, int64_t batch, const Result& to);
  absl::StatusOr<const std::byte*> GiveValues(const GraphProgram& made,
                                              absl::Span<const std::byte> input, int64_t batch);
  absl::Status RunOnHost(absl::Span<const std::byte> input, int64_t batch,
                         absl::Span<std::byte> output);
  void FinishSums(const int32_t* sums, int64_t batch, float* logits) const;
  void FinishCodes(const int8_t* codes, int64_t batch, std::byte* output);
  absl::StatusOr<double> TimeNode(const Int8Graph& graph, size_t node, int64_t batch, int passes);

  const Int8Graph& graph_;
  const std::unique_ptr<Backend> owned_;
  Backend& backend_;
  const size_t last_;
  std::vector<size_t> given_;  // values that the host has
  size_t end_ = 0;             // the last node that the backend computes
  std::map<size_t, RealConv> reals_;
  std::unique_ptr<Memory> parameters_;
  std::map<int64_t, std::unique_ptr<Prepared>> prepared_;  // by batch
  Room input_, output_;
  std::vector<int8_t> codes_;  // of a last node that is the host's
};

absl::StatusOr<Prepared*> ProgramExecutor::PreparedFor(int64_t batch) {
  const auto found = prepared_.find(batch);
  if (found != prepared_.end()) return found->second.get();
  if (prepared_.size() == kMaxPrograms) prepared_.clear();
  RUNNEL_ASSIGN_OR_RETURN(GraphProgram made, Compile(graph_, batch, given_, end_));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Prepared> prepared,
                          Prepared::Of(std::move(made), backend_));
  return (prepared_[batch] = std::move(prepared)).get();
}

// from: samples, or codes of its input.
void ProgramExecutor::RunReal(size_t node, const std::byte* from, int64_t batch, const Result& to) {
  RealConv& real = reals_.at(node);
  const size_t input = graph_.nodes[node].node.inputs[0];
  const bool takes_samples = input == 0 && !graph_.takes_codes;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t at = b * outputs(input);
    real.Run(takes_samples ? reinterpret_cast<const float*>(from) + at : nullptr,
             takes_samples ? nullptr : reinterpret_cast<const int8_t*>(from) + at,
             to.codes == nullptr ? nullptr : to.codes + b * outputs(node),
             to.logits == nullptr ? nullptr : to.logits + b * outputs(node));
  }
}

// What Storage::kInput is bound to.
absl::StatusOr<const std::byte*> ProgramExecutor::GiveValues(const GraphProgram& made,
                                                             absl::Span<const std::byte> input,
                                                             int64_t batch) {
  if (made.given.size() == 1 && made.given[0].node == 0 && IsAligned(input.data())) {
    return input.data();
  }
  RUNNEL_ASSIGN_OR_RETURN(std::byte * area, input_.Of(made.program.input_bytes));
  for (const GivenValue& value : made.given) {
    std::byte* to = area + value.offset_bytes;
    if (value.node == 0) {
      std::memcpy(to, input.data(), input.size());
    } else {
      RunReal(value.node, input.data(), batch, {reinterpret_cast<int8_t*>(to)});
    }
  }
  return area;
}

// Sums lie channels first, logits last.
void ProgramExecutor::FinishSums(const int32_t* sums, int64_t batch, float* logits) const {
  const std::vector<double>& scales = graph_.nodes[end_].logit_scales;
  const auto channels = static_cast<int64_t>(scales.size());
  const int64_t positions = outputs(end_) / channels;
  for (int64_t b = 0; b < batch; ++b, logits += outputs(end_)) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < positions; ++p) {
        logits[p * channels + c] = static_cast<float>(*sums++ * scales[c]);
      }
    }
  }
}

// codes: of the last node that is not the host's.
void ProgramExecutor::FinishCodes(const int8_t* codes, int64_t batch, std::byte* output) {
  const Int8Node& last = graph_.nodes[last_];
  auto* logits = reinterpret_cast<float*>(output);
  const int64_t count = batch * outputs(last_);
  if (last_ != end_) {
    codes_.resize(count);
    RunReal(last_, reinterpret_cast<const std::byte*>(codes), batch,
            {codes_.data(), last.gives_logits() ? logits : nullptr});
    if (last.gives_logits()) return;
    codes = codes_.data();
  }
  if (!graph_.gives_codes) {
    Decode(last.coding, codes, count, logits);
  } else if (reinterpret_cast<const std::byte*>(codes) != output) {
    std::memcpy(output, codes, count);
  }
}

// A graph that ends with a convolution of the samples in FP32.
absl::Status ProgramExecutor::RunOnHost(absl::Span<const std::byte> input, int64_t batch,
                                        absl::Span<std::byte> output) {
  const bool gives_logits = graph_.nodes[end_].gives_logits();
  RUNNEL_ASSIGN_OR_RETURN(std::byte * own, output_.Of(batch * outputs(end_)));
  auto* codes = reinterpret_cast<int8_t*>(own);
  RunReal(end_, input.data(), batch,
          {codes, gives_logits ? reinterpret_cast<float*>(output.data()) : nullptr});
  if (!gives_logits) FinishCodes(codes, batch, output.data());
  return absl::OkStatus();
}

absl::Status ProgramExecutor::Run(absl::Span<const std::byte> input, int64_t batch,
                                  absl::Span<std::byte> output) {
  RUNNEL_RETURN_IF_ERROR(CheckSpans(graph_, input.size(), batch, output.size()));
  if (reals_.count(end_) > 0) return RunOnHost(input, batch, output);
  RUNNEL_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(batch));
  const GraphProgram& made = prepared->made;
  std::byte* result = output.data();
  if (last_ != end_ || !graph_.gives_codes || !IsAligned(result)) {
    RUNNEL_ASSIGN_OR_RETURN(result, output_.Of(made.program.output_bytes));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::byte* given, GiveValues(made, input, batch));
  RUNNEL_RETURN_IF_ERROR(prepared->Run(*parameters_, given, result));
  if (made.gives_sums) {
    FinishSums(reinterpret_cast<const int32_t*>(result), batch,
               reinterpret_cast<float*>(output.data()));
  } else {
    FinishCodes(reinterpret_cast<const int8_t*>(result), batch, output.data());
  }
  return absl::OkStatus();
}

std::string ProgramExecutor::kernel(size_t node) const {
  const Int8Node& n = graph_.nodes[node];
  if (n.is_real()) return absl::StrCat("fp32 ", cpu::BestInt8Kernels().name, ", host");
  const cpu::ConvShape& s = n.node.shape;
  const absl::string_view way = n.node.kind != NodeKind::kConv ? Name(n.node.kind)
                                : s.depthwise()                ? "depthwise"
                                : s.groups > 1                 ? "grouped"
                                                               : "direct";
  return absl::StrCat(way, " ", backend_.name());
}

// A program of the node alone, with its values' way there and back. graph: takes codes, but for
// node 0.
absl::StatusOr<double> ProgramExecutor::TimeNode(const Int8Graph& graph, size_t node, int64_t batch,
                                                 int passes) {
  const Node& shape = graph.nodes[node].node;
  std::vector<size_t> given = {0};
  if (node > 0) given.assign(shape.inputs.begin(), shape.inputs.begin() + shape.input_count());
  RUNNEL_ASSIGN_OR_RETURN(GraphProgram made, Compile(graph, batch, given, node));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> parameters,
                          Upload(backend_, made.parameters));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Prepared> prepared,
                          Prepared::Of(std::move(made), backend_));
  const Program& program = prepared->made.program;
  RUNNEL_ASSIGN_OR_RETURN(std::byte * input, input_.Of(program.input_bytes));
  RUNNEL_ASSIGN_OR_RETURN(std::byte * output, output_.Of(program.output_bytes));
  std::memset(input, 0, program.input_bytes);
  return MedianSeconds(passes, [&] { return prepared->Run(*parameters, input, output); });
}

absl::StatusOr<std::vector<double>> ProgramExecutor::TimeNodes(absl::Span<const std::byte>,
                                                               int64_t batch, int passes) {
  if (!backend_.traits().rates.is_timed) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", backend_.name(), " tells no times of single nodes; take cpu"));
  }
  Int8Graph codes = graph_;
  codes.takes_codes = true;
  std::vector<double> seconds;
  for (size_t i = 0; i <= last_; ++i) {
    if (reals_.count(i) == 0) {
      RUNNEL_ASSIGN_OR_RETURN(seconds.emplace_back(),
                              TimeNode(i == 0 ? graph_ : codes, i, batch, passes));
      continue;
    }
    const std::vector<float> input(batch * outputs(graph_.nodes[i].node.inputs[0]));
    std::vector<int8_t> own(batch * outputs(i));
    std::vector<float> logits(batch * outputs(i));
    RUNNEL_ASSIGN_OR_RETURN(seconds.emplace_back(), MedianSeconds(passes, [&] {
                              RunReal(i, reinterpret_cast<const std::byte*>(input.data()), batch,
                                      {own.data(), logits.data()});
                              return absl::OkStatus();
                            }));
  }
  return seconds;
}

absl::StatusOr<std::unique_ptr<GraphExecutor>> Make(const Int8Graph& graph, Backend& backend,
                                                    std::unique_ptr<Backend> owned) {
  auto executor = std::make_unique<ProgramExecutor>(graph, backend, std::move(owned));
  RUNNEL_RETURN_IF_ERROR(executor->Prepare());
  return executor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeProgramExecutor(
    const Int8Graph& graph, std::unique_ptr<Backend> backend) {
  Backend& borrowed = *backend;
  return Make(graph, borrowed, std::move(backend));
}

absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeProgramExecutor(const Int8Graph& graph,
                                                                   Backend& backend) {
  return Make(graph, backend, nullptr);
}

}  // namespace runnel::inference
