#pragma once

// Time of each node of a quantised model on this host and its error against FP32, as a file for
// people (Markdown), programs (JSON) or a page (SVG). After figures 4 to 7 of "Efficient INT8
// inference on mobile GPUs".

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/records/quantized_model.h"

namespace runnel {

struct LayerReport {
  std::string title;
  std::string kernels;  // instruction set, or device
  int64_t threads = 1;
  double peak = 0;                   // operations a second of one thread; 0: not known
  std::vector<LayerFigures> layers;  // by node
  std::vector<LayerError> errors;    // by node; or none
};

// Before any work: InvalidArgument for another extension than .md, .json and .svg; NotFound or
// PermissionDenied for a folder that no file can be written to. Each names the path.
absl::Status CheckReportPath(const std::string& path);

// Errors as WriteFileAtomically. path: as CheckReportPath wants it.
absl::Status WriteLayerReport(const LayerReport& report, const std::string& path);

// The three forms. JSON: title, kernels, threads, peak_gops, seconds, layers (name, shape, kernel,
// macs, bytes, ms, gops, share_of_peak, snr_db, cosine; the last two null where not known, snr_db
// also where values are equal; shares of a peak that is not known are 0).
std::string LayerReportMarkdown(const LayerReport& report);
std::string LayerReportJson(const LayerReport& report);
std::string LayerReportSvg(const LayerReport& report);

}  // namespace runnel
