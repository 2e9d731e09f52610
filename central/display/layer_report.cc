#include "central/display/layer_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

using nlohmann::json;

double Gops(const LayerFigures& layer) {
  return layer.seconds > 0 ? 2e-9 * static_cast<double>(layer.macs) / layer.seconds : 0;
}

double ShareOfPeak(const LayerReport& report, const LayerFigures& layer) {
  const double peak = report.peak * static_cast<double>(report.threads);
  return peak > 0 ? 1e9 * Gops(layer) / peak : 0;
}

double TotalSeconds(const LayerReport& report) {
  double seconds = 0;
  for (const LayerFigures& layer : report.layers) seconds += layer.seconds;
  return seconds;
}

// Speed of nodes that multiply; other nodes have no operations to compare with the peak.
std::string GopsText(const LayerFigures& layer) {
  return layer.macs == 0 ? "" : absl::StrFormat("%.0f", Gops(layer));
}
std::string ShareText(const LayerReport& report, const LayerFigures& layer) {
  const bool is_known = layer.macs > 0 && report.peak > 0;
  return is_known ? absl::StrFormat("%.0f %%", 100 * ShareOfPeak(report, layer)) : "";
}
// FP32 time over INT8 time, where both were measured.
std::string Fp32Text(const LayerFigures& layer) {
  return layer.fp32_seconds > 0 ? absl::StrFormat("%.4f", layer.fp32_seconds * 1e3) : "";
}
std::string RatioText(const LayerFigures& layer) {
  const bool is_known = layer.fp32_seconds > 0 && layer.seconds > 0;
  return is_known ? absl::StrFormat("%.1f", layer.fp32_seconds / layer.seconds) : "";
}
std::string SnrText(const LayerReport& report, size_t at) {
  if (at >= report.errors.size()) return "";
  const double snr = report.errors[at].snr_db;
  return std::isinf(snr) ? "equal" : absl::StrFormat("%.1f", snr);
}
std::string CosineText(const LayerReport& report, size_t at) {
  return at < report.errors.size() ? absl::StrFormat("%.5f", report.errors[at].cosine) : "";
}

std::string Summary(const LayerReport& report) {
  return absl::StrCat(
      absl::StrFormat("%s: %.3f ms a sample, %d thread%s, %s", report.title,
                      TotalSeconds(report) * 1e3, report.threads, report.threads == 1 ? "" : "s",
                      report.kernels),
      report.peak > 0 ? absl::StrFormat(", peak %.0f GOP/s a thread", report.peak * 1e-9) : "");
}

std::string ForXml(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace

absl::Status CheckReportPath(const std::string& path) {
  if (!absl::EndsWith(path, ".md") && !absl::EndsWith(path, ".json") &&
      !absl::EndsWith(path, ".svg")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a report's name ends in .md, .json or .svg"));
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return FileError("write", path, EISDIR);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  if (access(where.c_str(), W_OK | X_OK) != 0) return FileError("write", path, errno);
  return absl::OkStatus();
}

std::string LayerReportMarkdown(const LayerReport& report) {
  std::string text =
      absl::StrCat("# ", Summary(report), "\n\n",
                   "| node | layer | in - size - out | kernel | ms | FP32 ms | FP32 / INT8 | GOP/s "
                   "| of peak | SNR dB | cosine | "
                   "bytes |\n|---:|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerFigures& layer = report.layers[i];
    absl::StrAppend(&text, "| ", i, " | ", layer.name, " | ", layer.shape, " | ", layer.kernel,
                    absl::StrFormat(" | %.4f | ", layer.seconds * 1e3), Fp32Text(layer), " | ",
                    RatioText(layer), " | ", GopsText(layer), " | ", ShareText(report, layer),
                    " | ", SnrText(report, i), " | ", CosineText(report, i), " | ", layer.bytes,
                    " |\n");
  }
  return text;
}

std::string LayerReportJson(const LayerReport& report) {
  json layers = json::array();
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerFigures& layer = report.layers[i];
    json row = {{"name", layer.name},     {"shape", layer.shape},
                {"kernel", layer.kernel}, {"macs", layer.macs},
                {"bytes", layer.bytes},   {"ms", layer.seconds * 1e3},
                {"gops", Gops(layer)},    {"share_of_peak", ShareOfPeak(report, layer)},
                {"fp32_ms", nullptr},     {"snr_db", nullptr},
                {"cosine", nullptr}};
    if (layer.fp32_seconds > 0) row["fp32_ms"] = layer.fp32_seconds * 1e3;
    if (i < report.errors.size()) {
      if (!std::isinf(report.errors[i].snr_db)) row["snr_db"] = report.errors[i].snr_db;
      row["cosine"] = report.errors[i].cosine;
    }
    layers.push_back(std::move(row));
  }
  const json all = {{"title", report.title},           {"kernels", report.kernels},
                    {"threads", report.threads},       {"peak_gops", report.peak * 1e-9},
                    {"seconds", TotalSeconds(report)}, {"layers", std::move(layers)}};
  return absl::StrCat(all.dump(1), "\n");
}

// Draws one bar a node, as long as its time; the dark part is the time at the peak.
std::string LayerReportSvg(const LayerReport& report) {
  constexpr int kRow = 18, kTop = 48, kText = 330, kBar = 420, kWidth = 1080;
  double longest = 1e-12;
  for (const LayerFigures& layer : report.layers) longest = std::max(longest, layer.seconds);
  const int height = kTop + kRow * static_cast<int>(report.layers.size()) + 12;
  std::string text = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
      "<text x=\"8\" y=\"18\" font-size=\"14\">%s</text>\n"
      "<text x=\"%d\" y=\"38\" fill=\"#555\">time; dark: what the peak would need</text>\n",
      kWidth, height, kWidth, height, ForXml(Summary(report)), kText);
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerFigures& layer = report.layers[i];
    const int y = kTop + kRow * static_cast<int>(i);
    const double bar = kBar * layer.seconds / longest;
    std::string figures = absl::StrFormat("%.3f ms", layer.seconds * 1e3);
    if (layer.macs > 0) {
      absl::StrAppend(&figures, ", ", GopsText(layer), " GOP/s, ", ShareText(report, layer));
    }
    if (layer.fp32_seconds > 0) {
      absl::StrAppend(&figures, ", FP32 takes ", RatioText(layer), " times as long");
    }
    if (i < report.errors.size()) absl::StrAppend(&figures, ", SNR ", SnrText(report, i), " dB");
    absl::StrAppendFormat(
        &text,
        "<text x=\"8\" y=\"%d\">%s</text>\n"
        "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"#9bbcdd\"/>\n"
        "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"#2b5f91\"/>\n"
        "<text x=\"%.1f\" y=\"%d\">%s</text>\n",
        y + 11, ForXml(absl::StrCat(i, "  ", layer.name, "  ", layer.shape, "  ", layer.kernel)),
        kText, y, bar, kText, y, bar * std::min(1.0, ShareOfPeak(report, layer)), kText + bar + 6,
        y + 11, ForXml(figures));
  }
  return absl::StrCat(text, "</svg>\n");
}

absl::Status WriteLayerReport(const LayerReport& report, const std::string& path) {
  const std::string content = absl::EndsWith(path, ".json")  ? LayerReportJson(report)
                              : absl::EndsWith(path, ".svg") ? LayerReportSvg(report)
                                                             : LayerReportMarkdown(report);
  return WriteFileAtomically(path, {content});
}

}  // namespace runnel
