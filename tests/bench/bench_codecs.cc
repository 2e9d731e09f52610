// How fast the codecs are, as ratios to memcpy of the same tensor, in processor time: memcpy, encode
// and decode take turns in one loop, so that a busy machine slows all of them alike. Medians.
//
//   bench_codecs [--kernels NAME] [--repetitions N] [--shape 128x32x16x16] [--summary FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

struct Options {
  std::string kernels;
  int repetitions = 101;
  Shape shape = {128, 32, 16, 16};
  std::string summary;
};

struct Result {
  std::string codec;
  int64_t payload_bytes = 0;
  double size_ratio = 0;
  double encode_to_memcpy = 0;
  double decode_to_memcpy = 0;
  double memcpy_gb_s = 0;
  double encode_gb_s = 0;
  double decode_gb_s = 0;
};

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_codecs: %s\n", why.c_str());
  std::exit(1);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--kernels") {
      options.kernels = value;
    } else if (flag == "--summary") {
      options.summary = value;
    } else if (flag == "--repetitions") {
      if (!absl::SimpleAtoi(value, &options.repetitions)) Fail("bad --repetitions");
    } else if (flag == "--shape") {
      std::vector<int64_t> dims;
      for (absl::string_view part : absl::StrSplit(value, 'x')) {
        if (!absl::SimpleAtoi(part, &dims.emplace_back())) Fail("bad --shape");
      }
      const auto shape = Shape::Create(dims);
      if (!shape.ok()) Fail(shape.status().ToString());
      options.shape = *shape;
    } else {
      Fail("unknown flag " + flag);
    }
  }
  if (argc % 2 == 0) Fail("a flag needs a value");
  if (options.repetitions < 1) Fail("--repetitions must be at least 1");
  return options;
}

const CodecKernels& FindKernels(const std::string& name) {
  if (name.empty()) return BestCodecKernels();
  for (const CodecKernels* kernels : SupportedCodecKernels()) {
    if (kernels->name == name) return *kernels;
  }
  Fail("this machine has no kernels " + name);
}

// The codec of a name on the given kernels rather than the best ones.
std::unique_ptr<const Codec> MakeOn(const std::string& name, const CodecKernels& kernels) {
  const CodecId codec = CodecId::Parse(name).value();
  return FindCodec(codec).value()->make(codec.parameter.value_or(0), kernels);
}

int64_t TimeOf(const std::function<void()>& work) {
  const int64_t begin = ThreadProcessorNs();
  work();
  return ThreadProcessorNs() - begin;
}

double Median(std::vector<int64_t> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return static_cast<double>(values[values.size() / 2]);
}

Result Measure(const Codec& codec, const std::vector<float>& x, const Options& options) {
  std::vector<float> copy(x.size(), 1.0f);
  std::vector<float> decoded(x.size(), 1.0f);
  Result result;
  result.codec = codec.name();
  result.payload_bytes = codec.EncodedBytes(options.shape).value();
  std::vector<std::byte> payload(result.payload_bytes, std::byte{1});
  const auto encoder = codec.NewEncoder({1, RandomPurpose::kCodecBackward, 3});
  std::vector<int64_t> memcpy_nanos, encode_nanos, decode_nanos;
  bool ok = true;
  for (int i = 0; i < options.repetitions + 3; ++i) {
    const int64_t c = TimeOf([&] { std::memcpy(copy.data(), x.data(), x.size() * sizeof(float)); });
    const int64_t e = TimeOf([&] {
      ok &= encoder->Encode(ViewOf(x, options.shape), Sequence(i), i == 0, absl::MakeSpan(payload))
                .ok();
    });
    const int64_t d = TimeOf([&] {
      ok &= codec.Decode(payload, MutableViewOf(absl::MakeSpan(decoded), options.shape)).ok();
    });
    if (i < 3) continue;  // the restart, and pages and caches that are still cold
    memcpy_nanos.push_back(c);
    encode_nanos.push_back(e);
    decode_nanos.push_back(d);
  }
  if (!ok) Fail(result.codec + " failed");
  const double tensor_bytes = static_cast<double>(x.size() * sizeof(float));
  result.size_ratio = tensor_bytes / static_cast<double>(result.payload_bytes);
  result.memcpy_gb_s = tensor_bytes / Median(memcpy_nanos);
  result.encode_gb_s = tensor_bytes / Median(encode_nanos);
  result.decode_gb_s = tensor_bytes / Median(decode_nanos);
  result.encode_to_memcpy = result.encode_gb_s / result.memcpy_gb_s;
  result.decode_to_memcpy = result.decode_gb_s / result.memcpy_gb_s;
  return result;
}

void Print(const Result& r) {
  std::printf(
      "%-13s %10lld B %6.2fx   encode %5.2fx memcpy (%6.2f GB/s)   decode %5.2fx (%6.2f)"
      "   memcpy %6.2f GB/s\n",
      r.codec.c_str(), static_cast<long long>(r.payload_bytes), r.size_ratio, r.encode_to_memcpy,
      r.encode_gb_s, r.decode_to_memcpy, r.decode_gb_s, r.memcpy_gb_s);
}

nlohmann::json ToJson(const Result& r) {
  return {{"codec", r.codec},
          {"encoded_bytes", r.payload_bytes},
          {"size_ratio", r.size_ratio},
          {"encode_to_memcpy", r.encode_to_memcpy},
          {"decode_to_memcpy", r.decode_to_memcpy},
          {"memcpy_gb_per_s", r.memcpy_gb_s},
          {"encode_gb_per_s", r.encode_gb_s},
          {"decode_gb_per_s", r.decode_gb_s}};
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const CodecKernels& kernels = FindKernels(options.kernels);
  const CounterRandom random(1, RandomPurpose::kTest, 0, 0);
  std::vector<float> x(options.shape.elements());
  for (size_t e = 0; e < x.size(); ++e) x[e] = static_cast<float>(random.Normal(e));
  const std::string kernels_name(kernels.name.data(), kernels.name.size());
  std::printf("kernels %s, shape %s, %d repetitions, medians\n", kernels_name.c_str(),
              options.shape.ToString().c_str(), options.repetitions);
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& name : ExampleCodecNames()) {
    const Result result = Measure(*MakeOn(name, kernels), x, options);
    Print(result);
    rows.push_back(ToJson(result));
  }
  if (!options.summary.empty()) {
    std::ofstream file(options.summary);
    file << nlohmann::json{{"bench", "codecs"},
                           {"kernels", kernels_name},
                           {"shape", options.shape.ToString()},
                           {"repetitions", options.repetitions},
                           {"codecs", rows}}
                .dump(2)
         << "\n";
    if (!file.flush()) Fail("cannot write " + options.summary);
  }
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Main(argc, argv); }
