#include "worker/inference/inference_job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/models/graph_runner.h"
#include "kernels/models/node_profile.h"
#include "kernels/models/quantize/quantizer.h"
#include "proto/base/status_macros.h"
#include "proto/inference.pb.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/control/model_convert.h"
#include "worker/inference/backend_fit.h"
#include "worker/inference/front_run.h"
#include "worker/inference/graph_convert.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel {
namespace {

using inference::Int8Graph;

constexpr int64_t kMaxJobBytes = (int64_t{1} << 31) - 1;

// The samples of a job, a batch at a time.
class Samples {
 public:
  // `elements`: of one sample.
  static absl::StatusOr<Samples> Of(const proto::QuantizeModel& job, int64_t elements) {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
    const auto all = static_cast<int64_t>(job.samples().size());
    if (all == 0 || all % bytes != 0 || job.batch() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("samples of ", all, " bytes: the model takes ", bytes, " each"));
    }
    return Samples(job, elements, all / bytes);
  }
  int64_t count() const { return count_; }
  std::vector<float> First(int64_t count) const {
    std::vector<float> values(count * elements_);
    std::memcpy(values.data(), job_.samples().data(), values.size() * sizeof(float));
    return values;
  }

  // use(first, batch, values) for each batch in order.
  template <typename UseFn>
  absl::Status ForEachBatch(UseFn use) const {
    std::vector<float> values;
    for (int64_t first = 0; first < count_; first += job_.batch()) {
      const int64_t batch = std::min(job_.batch(), count_ - first);
      values.resize(batch * elements_);
      std::memcpy(values.data(), job_.samples().data() + first * elements_ * sizeof(float),
                  values.size() * sizeof(float));
      RUNNEL_RETURN_IF_ERROR(use(first, batch, absl::MakeConstSpan(values)));
    }
    return absl::OkStatus();
  }

 private:
  Samples(const proto::QuantizeModel& job, int64_t elements, int64_t count)
      : job_(job), elements_(elements), count_(count) {}

  const proto::QuantizeModel& job_;
  int64_t elements_;
  int64_t count_;
};

absl::StatusOr<inference::QuantizeOptions> OptionsOf(const proto::QuantizeMethod& method) {
  inference::QuantizeOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.calibration, inference::ParseCalibration(method.calibration()));
  RUNNEL_ASSIGN_OR_RETURN(options.scheme, inference::ParseScheme(method.scheme()));
  RUNNEL_ASSIGN_OR_RETURN(options.granularity, inference::ParseGranularity(method.granularity()));
  RUNNEL_ASSIGN_OR_RETURN(options.winograd, inference::ParseWinograd(method.winograd()));
  // Files and jobs of earlier releases do not name them.
  if (!method.first_layer().empty()) {
    RUNNEL_ASSIGN_OR_RETURN(options.first_in_fp32,
                            inference::ParseLayer("first layer", method.first_layer()));
  }
  if (!method.last_layer().empty()) {
    RUNNEL_ASSIGN_OR_RETURN(options.last_in_fp32,
                            inference::ParseLayer("last layer", method.last_layer()));
  }
  RUNNEL_RETURN_IF_ERROR(inference::CheckOptions(options));
  return options;
}

// Samples that the errors of a graph are taken over: they run through FP32 in plain loops.
constexpr int64_t kErrorSamples = 16;
// Samples that --winograd auto compares classes on.
constexpr int64_t kChoiceSamples = 256;
// Passes of one sample that each node's time is the median of.
constexpr int kTimedPasses = 21;
// Those in FP32 take several times as long.
constexpr int kTimedFp32Passes = 7;

absl::Status AddErrors(const inference::FoldedGraph& folded, const Int8Graph& graph,
                       inference::GraphRunner& runner, const Samples& samples,
                       proto::InferenceReply& reply) {
  const int64_t count = std::min(kErrorSamples, samples.count());
  RUNNEL_ASSIGN_OR_RETURN(
      const std::vector<inference::NodeError> errors,
      inference::CompareNodes(folded, graph, runner, samples.First(count), count));
  for (const inference::NodeError& error : errors) {
    proto::LayerError& added = *reply.add_errors();
    added.set_snr_db(error.snr_db);
    added.set_cosine(error.cosine);
  }
  return absl::OkStatus();
}

// By node of the graph; 0 where it does not multiply.
std::vector<double> Fp32Seconds(const Int8Graph& graph, KernelTimer& timer) {
  std::vector<ConvShape> shapes;
  for (const inference::Int8Node& n : graph.nodes) {
    if (n.node.kind == inference::NodeKind::kConv) shapes.push_back(n.node.shape);
  }
  const std::vector<double> timed = timer.ConvSeconds(shapes, 1, kTimedFp32Passes);
  std::vector<double> seconds;
  size_t next = 0;
  for (const inference::Int8Node& n : graph.nodes)
    seconds.push_back(n.node.kind == inference::NodeKind::kConv ? timed[next++] : 0);
  return seconds;
}

absl::Status AddFigures(const Int8Graph& graph, inference::GraphRunner& runner, Backend& backend,
                        int threads, proto::InferenceReply& reply) {
  KernelTimer* timer = backend.kernel_timer();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> seconds, runner.TimeNodes(1, kTimedPasses));
  const std::vector<inference::NodeFacts> facts =
      inference::DescribeNodes(graph, [&runner](size_t node) { return runner.kernel(node); });
  std::vector<double> in_fp32(facts.size());
  if (timer != nullptr) in_fp32 = Fp32Seconds(graph, *timer);
  for (size_t i = 0; i < facts.size(); ++i) {
    proto::LayerFigures& layer = *reply.add_layers();
    layer.set_name(facts[i].name);
    layer.set_shape(facts[i].shape);
    layer.set_kernel(facts[i].kernel);
    layer.set_macs(facts[i].macs);
    layer.set_bytes(facts[i].bytes);
    layer.set_seconds(seconds[i]);
    layer.set_fp32_seconds(in_fp32[i]);
  }
  if (timer != nullptr) reply.set_peak(timer->MeasureInt8Peak());
  reply.set_threads(threads);
  return absl::OkStatus();
}

absl::StatusOr<Int8Graph> Finish(inference::Quantizer& quantizer,
                                 const inference::QuantizeOptions& options,
                                 const inference::FoldedGraph& folded, const Samples& samples,
                                 Backend& backend) {
  if (options.winograd != inference::WinogradUse::kAuto) return quantizer.Finish();
  const int64_t count = std::min(kChoiceSamples, samples.count());
  const std::vector<float> values = samples.First(count);
  return inference::QuantizeWithChosenWinograd(
      quantizer, folded, values, count, backend,
      [&](const Int8Graph& graph) -> absl::StatusOr<std::vector<double>> {
        RUNNEL_ASSIGN_OR_RETURN(const auto runner, inference::GraphRunner::Make(graph, backend));
        return runner->TimeNodes(1, kTimedPasses);
      });
}

absl::Status Quantize(proto::QuantizeModel& asked, const BackendSettings& settings,
                      proto::InferenceReply& reply) {
  RUNNEL_ASSIGN_OR_RETURN(const inference::QuantizeOptions options, OptionsOf(asked.method()));
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, FromProto(asked.model()));
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, FromProto(std::move(*asked.mutable_state())));
  RUNNEL_ASSIGN_OR_RETURN(const inference::FoldedGraph folded,
                          inference::FoldModel(model, state, asked.method().fold_batch_norm()));
  RUNNEL_ASSIGN_OR_RETURN(const Samples samples, Samples::Of(asked, model.input.elements()));
  inference::Quantizer quantizer(folded, options);
  for (int pass = 0; pass < quantizer.passes(); ++pass) {
    RUNNEL_RETURN_IF_ERROR(
        samples.ForEachBatch([&](int64_t, int64_t batch, absl::Span<const float> values) {
          quantizer.Observe(pass, values, batch);
          return absl::OkStatus();
        }));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend("cpu", settings));
  RUNNEL_ASSIGN_OR_RETURN(const Int8Graph graph,
                          Finish(quantizer, options, folded, samples, *backend));
  reply.set_winograd_fits(static_cast<int64_t>(quantizer.WinogradCandidates().size()));
  for (const inference::Int8Node& n : graph.nodes) {
    reply.set_winograd_taken(reply.winograd_taken() + (n.winograd ? 1 : 0));
  }
  reply.set_graph(SerializeGraph(graph));
  reply.set_weight_bytes(graph.weight_bytes());
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> runner,
                          inference::GraphRunner::Make(graph, *backend));
  RUNNEL_RETURN_IF_ERROR(AddErrors(folded, graph, *runner, samples, reply));
  if (!asked.report()) return absl::OkStatus();
  reply.set_kernels(backend->processor().dot_product);
  return AddFigures(graph, *runner, *backend, settings.threads, reply);
}

// On the backend of this name; a device is checked before it is believed.
absl::Status Profile(const proto::ProfileGraph& asked, const BackendSettings& settings,
                     proto::InferenceReply& reply) {
  RUNNEL_ASSIGN_OR_RETURN(const Int8Graph graph, ParseGraph(asked.graph()));
  if (graph.takes_codes || graph.gives_codes)
    return absl::InvalidArgumentError("its graph is a part of a model");
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeBackend(asked.backend(), settings));
  if (IsLoadedBackend(backend->name()))
    RUNNEL_RETURN_IF_ERROR(BackendVerdicts(/*folder=*/"").Admit(*backend));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> runner,
                          inference::GraphRunner::Make(graph, *backend));
  reply.set_kernels(backend->description());
  return AddFigures(graph, *runner, *backend, settings.threads, reply);
}

absl::Status Answer(absl::string_view bytes, const BackendSettings& settings,
                    proto::InferenceReply& reply) {
  proto::InferenceJob job;
  if (!job.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InvalidArgumentError("the job cannot be parsed");
  if (job.has_quantize()) return Quantize(*job.mutable_quantize(), settings, reply);
  if (job.has_profile()) return Profile(job.profile(), settings, reply);
  if (job.has_front()) return RunFrontJob(*job.mutable_front(), settings, reply);
  if (job.has_fit()) return FitBackendsJob(job.fit(), settings, reply);
  return absl::InvalidArgumentError("the job asks for nothing");
}

}  // namespace

absl::Status RunInferenceJob(const std::string& job_path, const std::string& reply_path,
                             const BackendSettings& settings) {
  RUNNEL_ASSIGN_OR_RETURN(std::string job, ReadWholeFile(job_path, kMaxJobBytes));
  proto::InferenceReply reply;
  const absl::Status answered = Answer(job, settings, reply);
  job = std::string();
  if (!answered.ok()) {
    reply.Clear();
    reply.set_code(static_cast<int>(answered.code()));
    reply.set_message(std::string(answered.message()));
  }
  const int fd = open(reply_path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) return FileError("write", reply_path, errno);
  const absl::Status status = WriteAll(fd, reply.SerializeAsString(), reply_path);
  close(fd);
  return status;
}

}  // namespace runnel
