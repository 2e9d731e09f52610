// The primitives of backend small beside the paper's figures 9, 10 and 12, and whole steps by naive and
// by tuned kernels. One thread; GMAC/s, and the share of what one core multiplies and adds at most with
// the instructions that the primitives are compiled to.
//
// bench_small [products|layers|steps ...]     (all)

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/backends/small/primitives/layers.h"
#include "kernels/backends/small/views.h"
#include "partition/zoo/zoo.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::small {
namespace {

// Of this thread's processor: other work on the machine does not count.
double Seconds(const std::function<void()>& work) {
  const int64_t begin = ThreadProcessorNs();
  work();
  return static_cast<double>(ThreadProcessorNs() - begin) * 1e-9;
}

// The least seconds of a call: of so many repetitions that they take a millisecond.
double BestSeconds(const std::function<void()>& work) {
  int repetitions = 1;
  const auto repeat = [&] {
    for (int i = 0; i < repetitions; ++i) work();
  };
  while (Seconds(repeat) < 1e-3) repetitions *= 2;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 15; ++run) best = std::min(best, Seconds(repeat) / repetitions);
  return best;
}

template <class T>
std::vector<T> RandomElements(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) Hold(static_cast<float>(engine() % 2001) * 1e-3f - 1, &value);
  return values;
}

// Multiply-adds a second of sums in registers: vectors of four, which any x86-64 and ARMv8 has.
double PeakMacs() {
  using Four = float __attribute__((vector_size(16)));
  constexpr int kVectors = 12, kTerms = 4096;
  Four sums[kVectors] = {};
  Four factor = {1e-3f, 2e-3f, 3e-3f, 4e-3f};
  const double seconds = BestSeconds([&] {
    Four local[kVectors];
    std::copy_n(sums, kVectors, local);
    for (int t = 0; t < kTerms; ++t) {
#pragma GCC unroll 12
      for (int i = 0; i < kVectors; ++i) {
        local[i] += factor * local[(i + 1) % kVectors];
#if defined(__x86_64__)
        asm volatile("" : "+x"(local[i]));
#else
        asm volatile("" : "+w"(local[i]));
#endif
      }
    }
    std::copy_n(local, kVectors, sums);
  });
  return 4.0 * kVectors * kTerms / seconds;
}

// ---- Figure 9: products of 32768 multiply-adds.

struct ProductSizes {
  int32_t n, k, m;
};
constexpr ProductSizes kProducts[] = {{16, 128, 16}, {32, 32, 32}, {64, 8, 64}};

template <class Rule>
void BenchProducts(const char* type, double peak) {
  const MatrixKernels<Rule> kernels = KernelsOf<Rule>();
  for (const ProductSizes& s : kProducts) {
    const auto a = RandomElements<typename Rule::Element>(s.n * s.k, 1);
    const auto b = RandomElements<typename Rule::Element>(s.k * s.m, 2);
    std::vector<typename Rule::Sum> c(static_cast<size_t>(s.n * s.m));
    const MatrixCall<Rule> call = {a.data(), b.data(), c.data(), s.n, s.k, s.m};
    for (int i = 0; i < kernels.count; ++i) {
      const double macs = static_cast<double>(s.n) * s.k * s.m;
      const double mm = macs / BestSeconds([&] { kernels.rows[i].mm(call); });
      const double mm_t = macs / BestSeconds([&] { kernels.rows[i].mm_t(call); });
      std::printf(
          "product %-9s %2dx%3dx%2d %-8s MM %6.2f GMAC/s %3.0f %%  MM_T %6.2f GMAC/s %3.0f %%\n",
          type, s.n, s.k, s.m, kernels.rows[i].name, mm * 1e-9, 100 * mm / peak, mm_t * 1e-9,
          100 * mm_t / peak);
    }
  }
}

// ---- Figures 10 and 12: a training step of the layers of table 5.

struct NamedConv {
  const char* name;
  Conv conv;
};
Conv SquareConv(int32_t in, int32_t side, int32_t kernel, int32_t out) {
  Conv conv;
  conv.in = {in, side, side};
  conv.out = {out, side, side};
  conv.kh = conv.kw = kernel;
  conv.pad_h = conv.pad_w = kernel / 2;
  return conv;
}

struct Shares {
  double products = 0, transforms = 0, copies = 0;
  double all() const { return products + transforms + copies; }
};

// One step with its operands copied in and its result out.
template <class Rule>
Shares TimeStep(const Conv& conv, Step step, Layout layout, bool transposed,
                const MatrixKernel<Rule>& kernel) {
  using T = typename Rule::Element;
  LayerCall<Rule> call;
  call.conv = conv;
  call.conv.order = layout == Layout::kHwc ? TermOrder::kTapsFirst : TermOrder::kChannelsFirst;
  call.row = &RowOf(layout, step, transposed, conv.is_pointwise());
  call.kernel = &kernel;
  const int32_t weights = conv.taps() * conv.in.c * conv.out.c;
  const auto x = RandomElements<T>(conv.in.elements(), 1), w = RandomElements<T>(weights, 2),
             dy = RandomElements<T>(conv.out.elements(), 3);
  std::vector<T> near_x(x.size()), near_w(w.size()), near_dy(dy.size());
  const TransformSize transforms = TransformsOf(call.conv, *call.row);
  std::vector<T> scratch(static_cast<size_t>(transforms.a + transforms.b) + 1);
  const int32_t results = step == Step::kForward         ? conv.out.elements()
                          : step == Step::kInputGradient ? conv.in.elements()
                                                         : weights;
  std::vector<typename Rule::Sum> result(static_cast<size_t>(results)), far(result.size());
  call.x = near_x.data();
  call.w = near_w.data();
  call.dy = near_dy.data();
  call.result = result.data();
  call.scratch = scratch.data();
  const auto copy = [](const auto& from, auto& to) {
    const auto bytes = static_cast<int32_t>(from.size() * sizeof(from[0]));
    CopyRows(from.data(), 0, to.data(), 0, 1, bytes);
  };
  Shares shares;
  shares.copies = BestSeconds([&] {
    if (step != Step::kInputGradient) copy(x, near_x);
    if (step != Step::kWeightGradient) copy(w, near_w);
    if (step != Step::kForward) copy(dy, near_dy);
    copy(result, far);
  });
  MatrixCall<Rule> product;
  shares.transforms = BestSeconds([&] { product = Arrange(call); });
  shares.products = BestSeconds([&] { (transposed ? kernel.mm_t : kernel.mm)(product); });
  return shares;
}

template <class Rule>
void BenchLayers(const char* type, const char* kernel_name, bool transposed, double peak) {
  const NamedConv convs[] = {{"CONV1", SquareConv(16, 8, 3, 16)},
                             {"CONV2", SquareConv(16, 4, 3, 32)},
                             {"CONV3", SquareConv(8, 16, 3, 8)},
                             {"CONV4", SquareConv(1, 8, 3, 16)},
                             {"PW", SquareConv(32, 8, 1, 64)}};
  const MatrixKernels<Rule> kernels = KernelsOf<Rule>();
  const MatrixKernel<Rule>* kernel = kernels.rows;
  for (int i = 0; i < kernels.count; ++i) {
    if (kernels.rows[i].name == std::string(kernel_name)) kernel = kernels.rows + i;
  }
  for (const Layout layout : {Layout::kHwc, Layout::kChw}) {
    for (const NamedConv& one : convs) {
      Shares all;
      for (const Step step : {Step::kForward, Step::kWeightGradient, Step::kInputGradient}) {
        const Shares shares = TimeStep<Rule>(one.conv, step, layout, transposed, *kernel);
        all.products += shares.products;
        all.transforms += shares.transforms;
        all.copies += shares.copies;
      }
      const double macs = 3.0 * one.conv.out.elements() * one.conv.taps() * one.conv.in.c;
      std::printf(
          "layer %-9s %-7s %s %-5s %7.2f us: products %2.0f %%, transforms %2.0f %%, copies "
          "%2.0f %%; %5.2f GMAC/s %3.0f %%\n",
          type, kernel->name, layout == Layout::kHwc ? "hwc" : "chw", one.name, all.all() * 1e6,
          100 * all.products / all.all(), 100 * all.transforms / all.all(),
          100 * all.copies / all.all(), macs / all.all() * 1e-9, 100 * macs / all.all() / peak);
    }
  }
}

// ---- Whole steps.

absl::StatusOr<double> StepSeconds(const ModelSpec& model, const char* recipe,
                                   const std::string& options) {
  BackendSettings settings;
  RUNNEL_ASSIGN_OR_RETURN(settings.options, BackendOptions::Parse(options));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend("small", settings));
  if (backend->tuner() != nullptr) backend->tuner()->BeginSearch(20, false, nullptr);
  RUNNEL_ASSIGN_OR_RETURN(
      TestPipeline net,
      TestPipeline::Make(model, {}, 1, backend.get(), 1, Checks::kOff, Steps::kAlone, recipe));
  const auto x = RandomValues(1, 1, model.input.elements());
  const auto labels = RandomLabels(1, 1, 1, model.classes);
  const StepContext context = {.step_labels = 1, .learning_rate = 0.01, .momentum = 0.9};
  absl::Status status;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 9; ++run) {
    best = std::min(best, Seconds([&] {
                      status.Update(net.ForwardBackward(x.data(), labels.data(), context));
                    }));
  }
  if (!status.ok()) return status;
  return best;
}

absl::Status BenchSteps() {
  for (const char* name : {"resnet8", "ds_cnn", "lenet"}) {
    RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
    for (const char* recipe : {"fp32", "bf16", "fp16"}) {
      RUNNEL_ASSIGN_OR_RETURN(const double naive,
                              StepSeconds(model, recipe, "small.kernels=naive"));
      RUNNEL_ASSIGN_OR_RETURN(const double rule, StepSeconds(model, recipe, "small.kernels=rule"));
      RUNNEL_ASSIGN_OR_RETURN(const double tuned,
                              StepSeconds(model, recipe, "small.kernels=tuned"));
      std::printf("step %-8s %-4s batch 1: naive %7.2f ms, rule %7.2f ms, tuned %7.2f ms: %.2fx\n",
                  name, recipe, naive * 1e3, rule * 1e3, tuned * 1e3, naive / tuned);
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& parts) {
  const auto wants = [&](const char* part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  const double peak = PeakMacs();
  std::printf("peak %.2f GMAC/s of one core, FP32, %s\n", peak * 1e-9,
              kFuses ? "fused" : "rounded products");
  if (wants("products")) {
    BenchProducts<Float32Rule>("fp32", peak);
    BenchProducts<WideRule<F16>>("fp16:32", peak);
    BenchProducts<NarrowRule<F16>>("fp16:16", peak);
    BenchProducts<WideRule<Bf16>>("bf16:32", peak);
  }
  if (wants("layers")) {
    BenchLayers<Float32Rule>("fp32", "naive", false, peak);
    BenchLayers<Float32Rule>("fp32", "2x4", false, peak);
    BenchLayers<WideRule<F16>>("fp16:32", "simd4x8", true, peak);
    BenchLayers<WideRule<Bf16>>("bf16:32", "simd4x8", true, peak);
  }
  if (wants("steps")) return BenchSteps();
  return absl::OkStatus();
}

}  // namespace
}  // namespace runnel::small

int main(int argc, char** argv) {
  const absl::Status status = runnel::small::Run({argv + 1, argv + argc});
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
