#include "central/reports/codec_report.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/codec.h"
#include "compress/typical_errors.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr double kKilobyte = 1024;
constexpr size_t kLargest = 0, kSmallest = 2;  // MobileNetV2's, of LatentTensors
constexpr int kMicroBatches = 8;               // adaptive codecs have settled by then
const Shape kQualityShape = {64, 64, 124};     // of the simple CNN's second layer

// Table 3, in the order of LatentTensors.
struct PaperRow {
  const char* codec;
  double kilobytes[4];
};
constexpr PaperRow kPaper[] = {{"identity", {4096, 2016, 80.47, 25.45}},
                               {"mbq:2", {257.1, 127.1, 6.09, 2.65}},
                               {"mbq:3", {385.1, 190.1, 8.60, 3.43}},
                               {"mbq:4", {513.1, 253.1, 11.1, 4.22}},
                               {"stochastic:4", {512.5, 252.5, 10.51, 3.62}}};

CodecLoss LossOf(const std::vector<float>& sent, const std::vector<float>& received) {
  double error = 0, square_error = 0, square = 0, product = 0;
  for (size_t e = 0; e < sent.size(); ++e) {
    const double x = sent[e], y = received[e];
    error += y - x;
    square_error += (y - x) * (y - x);
    square += x * x;
    product += x * y;
  }
  const auto n = static_cast<double>(sent.size());
  return {error / n / std::sqrt(square / n), product / square, square_error / square};
}

// Typical tensors of a link, one a micro-batch.
std::vector<std::vector<float>> TypicalTensors(Direction direction, uint64_t seed) {
  std::vector<std::vector<float>> tensors;
  for (int64_t sequence = 0; sequence < kMicroBatches; ++sequence) {
    tensors.push_back(
        TypicalTensor(direction, seed, sequence, static_cast<size_t>(kQualityShape.elements())));
  }
  return tensors;
}

// What is lost of the last of `tensors`.
absl::StatusOr<CodecLoss> Quality(const Codec& codec, Direction direction, uint64_t seed,
                                  const std::vector<std::vector<float>>& tensors) {
  const std::unique_ptr<Encoder> encoder = codec.NewEncoder({seed, PurposeOf(direction)});
  std::vector<std::byte> payload(static_cast<size_t>(codec.EncodedBytes(kQualityShape).value()));
  int64_t sequence = 0;
  for (const std::vector<float>& sent : tensors) {
    RUNNEL_RETURN_IF_ERROR(encoder->Encode(ViewOf(sent, kQualityShape), Sequence(sequence),
                                           sequence == 0, absl::MakeSpan(payload)));
    ++sequence;
  }
  std::vector<float> received(tensors.back().size());
  RUNNEL_RETURN_IF_ERROR(
      codec.Decode(payload, MutableViewOf(absl::MakeSpan(received), kQualityShape)));
  return LossOf(tensors.back(), received);
}

double Median(std::vector<int64_t> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return static_cast<double>(values[values.size() / 2]);
}

// FP32 bytes a nanosecond, which are GB/s.
absl::Status Speed(const Codec& codec, const CodecReportOptions& options, const Clock& clock,
                   CodecReport& report) {
  const Shape& shape = LatentTensors()[kLargest].shape;
  const CounterRandom random(options.seed, RandomPurpose::kCodecForward, 1, 0);
  std::vector<float> x(static_cast<size_t>(shape.elements())), y(x.size());
  for (size_t e = 0; e < x.size(); ++e) x[e] = random.Uniform(e) - 0.5f;
  std::vector<std::byte> payload(static_cast<size_t>(codec.EncodedBytes(shape).value()));
  const auto encoder = codec.NewEncoder({options.seed, RandomPurpose::kCodecForward, 0});
  std::vector<int64_t> encode_ns, decode_ns;
  for (int64_t i = 0; i <= options.repetitions; ++i) {
    const int64_t begin = clock.NowNanos();
    RUNNEL_RETURN_IF_ERROR(
        encoder->Encode(ViewOf(x, shape), Sequence(i), i == 0, absl::MakeSpan(payload)));
    const int64_t encoded = clock.NowNanos();
    RUNNEL_RETURN_IF_ERROR(codec.Decode(payload, MutableViewOf(absl::MakeSpan(y), shape)));
    const int64_t decoded = clock.NowNanos();
    if (i == 0) continue;  // the start of adaptive codecs, and cold pages
    encode_ns.push_back(encoded - begin);
    decode_ns.push_back(decoded - encoded);
  }
  const auto bytes = static_cast<double>(4 * shape.elements());
  report.encode_gb_per_s = bytes / Median(encode_ns);
  report.decode_gb_per_s = bytes / Median(decode_ns);
  return absl::OkStatus();
}

double RawBytes(size_t tensor) {
  return static_cast<double>(4 * LatentTensors()[tensor].shape.elements());
}

Json LossJson(const CodecLoss& loss) {
  return Json{
      {"mean_error", loss.mean_error}, {"gain", loss.gain}, {"mean_square", loss.mean_square}};
}

}  // namespace

absl::Span<const LatentTensor> LatentTensors() {
  static const LatentTensor kTensors[] = {{"MobileNetV2, largest", {128, 32, 16, 16}, 4096},
                                          {"simple CNN, largest", {64, 64, 126}, 2016},
                                          {"MobileNetV2, smallest", {128, 160, 1, 1}, 80.47},
                                          {"simple CNN, smallest", {64, 100}, 25.45}};
  return kTensors;
}

double PaperKilobytes(const std::string& codec, size_t tensor) {
  for (const PaperRow& row : kPaper) {
    if (codec == row.codec) return row.kilobytes[tensor];
  }
  return 0;
}

double TransferMs(int64_t frame_bytes, double megabits_per_second) {
  return static_cast<double>(frame_bytes) * 8 / (megabits_per_second * 1e3);
}

absl::StatusOr<std::vector<CodecReport>> ReportCodecs(const CodecReportOptions& options,
                                                      const Clock& clock) {
  std::vector<CodecReport> reports;
  // Drawing takes longer than most codecs do.
  const auto activations = TypicalTensors(Direction::kForward, options.seed);
  const auto gradients = TypicalTensors(Direction::kBackward, options.seed);
  for (const std::string& name : options.codecs) {
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> codec, MakeCodec(name));
    CodecReport& report = reports.emplace_back();
    report.codec = name;
    for (const LatentTensor& tensor : LatentTensors()) {
      report.frame_bytes.push_back(codec->EncodedBytes(tensor.shape).value() + kFrameHeaderBytes);
    }
    RUNNEL_ASSIGN_OR_RETURN(const CodecId id, CodecId::Parse(name));
    report.bits = static_cast<double>(8 * report.frame_bytes[kLargest]) /
                  static_cast<double>(LatentTensors()[kLargest].shape.elements());
    const CodecRow& row = **FindCodec(id);
    const Shape& largest = LatentTensors()[kLargest].shape;
    report.needed_bits = row.bits != nullptr
                             ? row.BitsOf(id)
                             : static_cast<double>(8 * codec->EncodedBytes(largest).value()) /
                                   static_cast<double>(largest.elements());
    RUNNEL_ASSIGN_OR_RETURN(report.activation,
                            Quality(*codec, Direction::kForward, options.seed, activations));
    RUNNEL_ASSIGN_OR_RETURN(report.gradient,
                            Quality(*codec, Direction::kBackward, options.seed, gradients));
    RUNNEL_RETURN_IF_ERROR(Speed(*codec, options, clock, report));
  }
  return reports;
}

std::string CodecReportText(const std::vector<CodecReport>& reports) {
  std::string text =
      "Table 3: KB of a frame with its header (ratio to FP32; the paper's KB)\n"
      "codec            MobileNetV2 4096 KB      CNN 2016 KB              MobileNetV2 80 KB        "
      "CNN 25 KB\n";
  for (const CodecReport& report : reports) {
    absl::StrAppend(&text, absl::StrFormat("%-16s", report.codec));
    for (size_t t = 0; t < report.frame_bytes.size(); ++t) {
      const auto bytes = static_cast<double>(report.frame_bytes[t]);
      const double paper = PaperKilobytes(report.codec, t);
      const std::string beside = paper == 0 ? "" : absl::StrFormat("; %g", paper);
      const std::string cell =
          absl::StrFormat("%.2f (%.2fx%s)", bytes / kKilobyte, RawBytes(t) / bytes, beside);
      absl::StrAppend(&text, absl::StrFormat(" %-24s", cell));
    }
    text += "\n";
  }
  absl::StrAppend(&text, "\nBits an element, MobileNetV2's largest latent output\n",
                  "codec             of the frame   of the levels   over them\n");
  for (const CodecReport& r : reports) {
    absl::StrAppend(&text, absl::StrFormat("%-16s %13.4f %15.4f %10.2f %%\n", r.codec, r.bits,
                                           r.needed_bits, 100 * (r.bits / r.needed_bits - 1)));
  }
  absl::StrAppend(&text, "\nWhat is lost (relative) and speed on this machine\n",
                  "codec            activations: bias  gain  mean square   gradients: bias  gain  "
                  "mean square   encode  decode GB/s\n");
  for (const CodecReport& r : reports) {
    absl::StrAppend(
        &text, absl::StrFormat("%-16s %17.1e %6.3f %11.5f %16.1e %6.3f %11.5f %8.2f %7.2f\n",
                               r.codec, r.activation.mean_error, r.activation.gain,
                               r.activation.mean_square, r.gradient.mean_error, r.gradient.gain,
                               r.gradient.mean_square, r.encode_gb_per_s, r.decode_gb_per_s));
  }
  absl::StrAppend(&text, "\nFigure 9: ms to send MobileNetV2's largest / smallest latent output, ",
                  "from sizes\ncodec           ");
  for (double mbps : kFigureMbps) {
    absl::StrAppend(&text, absl::StrFormat(" %18s", absl::StrFormat("%g Mbps", mbps)));
  }
  for (const CodecReport& report : reports) {
    absl::StrAppend(&text, absl::StrFormat("\n%-16s", report.codec));
    for (double mbps : kFigureMbps) {
      const std::string cell =
          absl::StrFormat("%.1f / %.2f", TransferMs(report.frame_bytes[kLargest], mbps),
                          TransferMs(report.frame_bytes[kSmallest], mbps));
      absl::StrAppend(&text, absl::StrFormat(" %18s", cell));
    }
  }
  return text;
}

std::string CodecReportJson(const std::vector<CodecReport>& reports) {
  Json tensors = Json::array(), codecs = Json::array(), figure = Json::object();
  for (const LatentTensor& tensor : LatentTensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape.ToString()},
                       {"fp32_bytes", 4 * tensor.shape.elements()}});
  }
  for (const CodecReport& report : reports) {
    Json ratios = Json::array(), paper = Json::array();
    for (size_t t = 0; t < report.frame_bytes.size(); ++t) {
      ratios.push_back(RawBytes(t) / static_cast<double>(report.frame_bytes[t]));
      const double kilobytes = PaperKilobytes(report.codec, t);
      paper.push_back(kilobytes == 0 ? Json(nullptr) : Json(kilobytes));
    }
    codecs.push_back({{"codec", report.codec},
                      {"frame_bytes", report.frame_bytes},
                      {"ratio", ratios},
                      {"paper_kb", paper},
                      {"bits", report.bits},
                      {"needed_bits", report.needed_bits},
                      {"activation", LossJson(report.activation)},
                      {"gradient", LossJson(report.gradient)},
                      {"encode_gb_per_s", report.encode_gb_per_s},
                      {"decode_gb_per_s", report.decode_gb_per_s}});
    Json largest = Json::array(), smallest = Json::array();
    for (double mbps : kFigureMbps) {
      largest.push_back(TransferMs(report.frame_bytes[kLargest], mbps));
      smallest.push_back(TransferMs(report.frame_bytes[kSmallest], mbps));
    }
    figure[report.codec] = Json{{"largest_ms", largest}, {"smallest_ms", smallest}};
  }
  return DumpJson(Json{{"tensors", tensors},
                       {"codecs", codecs},
                       {"figure_9", Json{{"mbps", kFigureMbps}, {"codecs", figure}}}}) +
         "\n";
}

}  // namespace runnel
