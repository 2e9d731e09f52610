// INT8 kernels against the register-only peak of this core and against oneDNN, in CPU time of one
// thread: for each case, rounds of (peak, each contender) and the median of each one's share.
//
//   bench_int8 [gemm] [conv] [elements]     default: all

#include <immintrin.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/backends/cpu/int8/int8_conv.h"
#include "proto/base/random.h"
#include "tests/kernels/cpu/int8_packed.h"

namespace runnel::cpu {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.01;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Twenty chains of vpdpbusd that touch registers only.
__attribute__((target("avx512f,avx512vnni"), noinline)) void PeakLoop(int steps) {
  asm volatile(
      "1:\n\t"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19\n\t"
      "vpdpbusd %%zmm31, %%zmm30, %%zmm\\r\n\t"
      ".endr\n\t"
      "dec %0\n\t"
      "jnz 1b\n\t"
      : "+r"(steps)
      :
      : "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9",
        "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19");
}

// Operations a second; a multiply-accumulate is two.
double PeakRate() {
  constexpr int kSteps = 40000;
  const double start = CpuSeconds();
  PeakLoop(kSteps);
  return 2.0 * 64 * 20 * kSteps / (CpuSeconds() - start);
}

struct Contender {
  std::string name;
  std::function<void()> call;
  std::vector<double> seconds, share = {};
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Compare(const std::string& title, double operations, std::vector<Contender> contenders) {
  std::vector<int> repeats;
  for (Contender& c : contenders) {
    c.call();
    const double start = CpuSeconds();
    c.call();
    repeats.push_back(std::max(1, static_cast<int>(kRoundSeconds / (CpuSeconds() - start))));
  }
  std::vector<double> peaks;
  for (int round = 0; round < kRounds; ++round) {
    const double peak = PeakRate();
    peaks.push_back(peak);
    for (size_t i = 0; i < contenders.size(); ++i) {
      const double start = CpuSeconds();
      for (int r = 0; r < repeats[i]; ++r) contenders[i].call();
      const double seconds = (CpuSeconds() - start) / repeats[i];
      contenders[i].seconds.push_back(seconds);
      contenders[i].share.push_back(operations / seconds / peak);
    }
  }
  std::printf("%-28s peak %4.0f", title.c_str(), Median(peaks) / 1e9);
  for (const Contender& c : contenders) {
    std::printf(" | %s %8.1f us %.3f", c.name.c_str(), Median(c.seconds) * 1e6, Median(c.share));
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<int8_t> Mantissas(int64_t count, uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  std::vector<int8_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int8_t>(random.Below(i, 255) - 127);
  return values;
}

// Memory as a caller would have it.
struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {
    std::memset(data, 0, bytes);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
};

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// oneDNN's product; with `reorders` the weights go to its own layout in every call, else once
// (packed) or never (it takes them as they are).
class DnnlMatmul {
 public:
  DnnlMatmul(Type a_type, int64_t m, int64_t n, int64_t k, const int8_t* a, const int8_t* b,
             int32_t* c, bool own_layout)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const dnnl::memory::desc a_desc(Dims{m, k}, a_type, Tag::ab);
    const dnnl::memory::desc b_desc(Dims{k, n}, Type::s8, Tag::ba);
    const dnnl::memory::desc b_any(Dims{k, n}, Type::s8, own_layout ? Tag::any : Tag::ba);
    const dnnl::memory::desc c_desc(Dims{m, n}, Type::s32, Tag::ab);
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a_desc, b_any, c_desc), engine_);
    a_ = dnnl::memory(a_desc, engine_, const_cast<int8_t*>(a));
    b_ = dnnl::memory(b_desc, engine_, const_cast<int8_t*>(b));
    c_ = dnnl::memory(c_desc, engine_, c);
    packed_ = own_layout ? dnnl::memory(desc.weights_desc(), engine_) : b_;
    matmul_ = dnnl::matmul(desc);
    if (own_layout) reorder_ = dnnl::reorder(b_, packed_);
  }
  void Pack() {
    reorder_.execute(stream_, b_, packed_);
    stream_.wait();
  }
  void Multiply() {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, packed_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, c_, packed_;
  dnnl::matmul matmul_;
  dnnl::reorder reorder_;
};

void BenchGemm(int64_t m, int64_t n, int64_t k) {
  const std::vector<int8_t> a = Mantissas(m * k, 1), b = Mantissas(n * k, 2);
  std::vector<int32_t> c(m * n), d(m * n);
  const Int8Kernels& kernels = BestInt8Kernels();
  ThreadPool pool(1);
  Aligned workspace(Int8WorkspaceBytes(kernels, LinearShape(m, n, k), ConvPass::kForward, 1));
  Aligned packed(Int8PackedBytes(kernels, n, k));
  const Int8Context context{&kernels, &pool, workspace.data};
  int32_t largest = 0;
  DnnlMatmul s8(Type::s8, m, n, k, a.data(), b.data(), d.data(), true);
  DnnlMatmul s8_plain(Type::s8, m, n, k, a.data(), b.data(), d.data(), false);
  DnnlMatmul u8(Type::u8, m, n, k, a.data(), b.data(), d.data(), true);
  Int8PackB(kernels, n, k, b.data(), packed.data);
  const auto pack = [](DnnlMatmul& product) {
    return [&product] {
      product.Pack();
      product.Multiply();
    };
  };
  Compare("gemm " + std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k),
          2.0 * m * n * k,
          {{"ours",
            [&] {
              Int8ConvForward(context, LinearShape(m, n, k), a.data(), b.data(), c.data(),
                              &largest);
            }},
           {"s8s8 plain", [&] { s8_plain.Multiply(); }},
           {"s8s8", pack(s8)},
           {"u8s8", pack(u8)},
           {"packed: ours",
            [&] { Int8GemmPacked(context, m, n, k, a.data(), packed.data, c.data(), &largest); }},
           {"s8s8", [&] { s8.Multiply(); }},
           {"u8s8", [&] { u8.Multiply(); }}});
}

void BenchConv(const char* name, int64_t size, int64_t in_c, int64_t out_c, int64_t kernel,
               int64_t pad, bool depthwise = false) {
  const int64_t batch = 64, out = size + 2 * pad - kernel + 1;
  const ConvShape s{.batch = batch,
                    .in_h = size,
                    .in_w = size,
                    .in_c = in_c,
                    .out_h = out,
                    .out_w = out,
                    .out_c = out_c,
                    .kernel_h = kernel,
                    .kernel_w = kernel,
                    .pad_h = pad,
                    .pad_w = pad,
                    .groups = depthwise ? in_c : 1};
  const std::vector<int8_t> x = Mantissas(s.in_elements(), 1), dy = Mantissas(s.out_elements(), 2),
                            w = Mantissas(s.weight_elements(), 3);
  std::vector<int32_t> y(dy.size()), dx(x.size()), dw(w.size());
  const Int8Kernels& kernels = BestInt8Kernels();
  ThreadPool pool(1);
  int64_t bytes = 0;
  for (ConvPass pass : {ConvPass::kForward, ConvPass::kInputGradient, ConvPass::kWeightGradient}) {
    bytes = std::max(bytes, Int8WorkspaceBytes(kernels, s, pass, 1));
  }
  Aligned workspace(bytes);
  const Int8Context context{&kernels, &pool, workspace.data};
  int32_t largest = 0;
  Compare(
      name, 2.0 * s.macs(),
      {{"fwd", [&] { Int8ConvForward(context, s, x.data(), w.data(), y.data(), &largest); }},
       {"in", [&] { Int8ConvInputGradient(context, s, dy.data(), w.data(), dx.data(), &largest); }},
       {"w",
        [&] { Int8ConvWeightGradient(context, s, dy.data(), x.data(), dw.data(), &largest); }}});
}

void BenchElements() {
  const int64_t n = 64 * 16 * 16 * 128;
  std::vector<int32_t> acc(n);
  for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<int32_t>(i * 2654435761u) >> 12;
  std::vector<int8_t> out(n), mask = Mantissas(n, 1);
  const Int8Kernels& k = BestInt8Kernels();
  // Operations here are bytes of accumulators.
  Compare(
      "elements (share: bytes)", 4.0 * n,
      {{"pseudo",
        [&] { k.rescale_pseudo_stochastic(acc.data(), n, 11, true, nullptr, out.data()); }},
       {"mask",
        [&] { k.rescale_pseudo_stochastic(acc.data(), n, 11, false, mask.data(), out.data()); }},
       {"half", [&] { k.rescale_half_away(acc.data(), n, 11, true, nullptr, out.data()); }},
       {"max", [&] { k.max_abs(acc.data(), n); }}});
}

void RunAll(const std::function<bool(const char*)>& wanted) {
  if (wanted("gemm")) {
    for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{{1024, 64, 576},
                                                              {4096, 64, 576},
                                                              {1024, 128, 1152},
                                                              {256, 256, 2304},
                                                              {64, 512, 4608},
                                                              {512, 512, 512},
                                                              {2048, 2048, 2048}}) {
      BenchGemm(m, n, k);
    }
  }
  if (wanted("conv")) {
    BenchConv("c1 3->64 @32", 32, 3, 64, 3, 1);
    BenchConv("c2 64->128 @16", 16, 64, 128, 3, 1);
    BenchConv("c3 128->256 @8", 8, 128, 256, 3, 1);
    BenchConv("c4 256->256 @8", 8, 256, 256, 3, 1);
    BenchConv("c5 256->512 @4", 4, 256, 512, 3, 1);
    BenchConv("c6 512->512 @4", 4, 512, 512, 3, 1);
    BenchConv("c7 c8 512->512 @2", 2, 512, 512, 3, 1);
    BenchConv("linear 512->512", 1, 512, 512, 1, 0);
  }
  if (wanted("more")) {
    BenchConv("lenet 1->20 @28 k5", 28, 1, 20, 5, 0);
    BenchConv("lenet 20->50 @12 k5", 12, 20, 50, 5, 0);
    BenchConv("1x1 96->24 @16", 16, 96, 24, 1, 0);
    BenchConv("1x1 24->144 @16", 16, 24, 144, 1, 0);
    BenchConv("depthwise 144 @16", 16, 144, 144, 3, 1, true);
  }
  if (wanted("elements")) BenchElements();
}

}  // namespace
}  // namespace runnel::cpu

int main(int argc, char** argv) {
  // OpenMP reads its environment before main.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
  }
  runnel::cpu::RunAll([&](const char* what) {
    bool any = argc == 1;
    for (int i = 1; i < argc; ++i) any |= std::strcmp(argv[i], what) == 0;
    return any;
  });
}
