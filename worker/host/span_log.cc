#include "worker/host/span_log.h"

#include <utility>

namespace runnel {

void SpanLog::Open(int64_t now_ns, const TraceRequest& request) {
  begin_ns_ = now_ns;
  end_ns_ = now_ns + request.window_ns;
  report_ = {};
  report_.id = request.id;
  report_.spans.reserve(kMaxSpans);
}

void SpanLog::Add(const Span& span) {
  if (span.begin_ns >= end_ns_ || span.begin_ns + span.took_ns <= begin_ns_) return;
  if (static_cast<int64_t>(report_.spans.size()) < kMaxSpans) {
    report_.spans.push_back(span);
  } else {
    ++report_.left_out;
  }
}

TraceReport SpanLog::Close() {
  begin_ns_ = end_ns_ = 0;
  return std::exchange(report_, {});
}

}  // namespace runnel
