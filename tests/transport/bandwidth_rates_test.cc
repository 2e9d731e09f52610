// What the meter makes of arrivals as they are on real hosts: packets behind a token bucket,
// readers and senders that a CPU quota stops, frames of all sizes.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "proto/transport/link/bandwidth.h"

namespace runnel::bandwidth_rates_test {
namespace {

constexpr double kPacketBytes = 1448;      // of TCP's payload
constexpr double kPacketWireBytes = 1514;  // with its headers
constexpr double kPeriodNs = 10e6;         // of the CPU quota

// A process that computes all the time: it runs `share` of each period, then is stopped.
struct Host {
  double share = 1;
  double phase_ns = 0;

  double RunsFrom(double now_ns) const {
    const double into = std::fmod(now_ns + phase_ns, kPeriodNs);
    return into < share * kPeriodNs ? now_ns : now_ns + kPeriodNs - into;
  }
};

struct Case {
  double mbps = 0;
  int64_t least_bytes = 0, most_bytes = 0;  // of a frame
  double reader_share = 1, sender_share = 1;
  double piece_read_ns = 30e3;  // on average
};

// Frames over one link, one after the other with pauses.
class LinkUnderLoad {
 public:
  LinkUnderLoad(const Case& link, uint32_t seed) : link_(link), draws_(seed) {
    reader_ = {link.reader_share, Uniform(0, kPeriodNs)};
    sender_ = {link.sender_share, Uniform(0, kPeriodNs)};
  }
  void SetRate(double mbps) { link_.mbps = mbps; }
  static double Goodput(double mbps) { return mbps * 1e6 / 8 * kPacketBytes / kPacketWireBytes; }

  // False: it was not sent in pieces.
  bool SendFrame() {
    const int64_t now_ns = static_cast<int64_t>(now_ns_);
    if (const auto probe = probe_.Due(now_ns, 0)) {
      Send(FrameKind::kProbe, *probe);
      probe_.Reported(static_cast<int64_t>(now_ns_), last_);
    }
    if (link_.least_bytes >= BandwidthProbe::kFirstBytes) probe_.Sent(now_ns);
    return Send(FrameKind::kActivation,
                static_cast<int64_t>(Uniform(static_cast<double>(link_.least_bytes),
                                             static_cast<double>(link_.most_bytes))));
  }
  double seconds() const { return now_ns_ * 1e-9; }

  BandwidthMeter meter;

 private:
  bool Send(FrameKind kind, int64_t size) {
    FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<uint64_t>(size);
    now_ns_ += Uniform(0, 30e6);
    // Now and then a process has waited, and computes at other times than before.
    if (Uniform(0, 1) < 0.1) reader_.phase_ns = Uniform(0, kPeriodNs);
    // A frame is ready at any time at which its sender runs.
    const double runs_ns = sender_.RunsFrom(now_ns_);
    if (runs_ns > now_ns_) now_ns_ = runs_ns + Uniform(0, 1) * sender_.share * kPeriodNs;
    const int64_t piece = measured_.PieceBytes(header, static_cast<int64_t>(now_ns_));
    if (piece == 0) {
      now_ns_ += static_cast<double>(size) / Goodput(link_.mbps) * 1e9;
      return false;
    }
    last_ = Receive(size, piece);
    meter.Add(last_);
    return true;
  }
  FrameArrival Receive(int64_t size, int64_t piece) {
    const double packet_ns = kPacketWireBytes * 8e3 / link_.mbps;
    ArrivalRecorder recorder;
    double link_free_ns = now_ns_, read_ns = 0;
    for (int64_t offset = 0; offset < size; offset += piece) {
      const double bytes = static_cast<double>(std::min(piece, size - offset));
      // Each piece is a call of the sender.
      now_ns_ = sender_.RunsFrom(now_ns_ + Exponential(20e3));
      link_free_ns = std::max(link_free_ns, now_ns_) + bytes / kPacketBytes * packet_ns;
      // It is there with the packet that holds its end.
      const double there_ns = link_free_ns + Uniform(0, 1) * packet_ns;
      read_ns = reader_.RunsFrom(std::max(read_ns, there_ns) + Exponential(link_.piece_read_ns));
      const int64_t stamp = static_cast<int64_t>(read_ns);
      if (offset == 0) {
        recorder.Begin(stamp);
      } else {
        recorder.Add(stamp, static_cast<int64_t>(bytes));
      }
    }
    now_ns_ = std::max(now_ns_, read_ns);
    return recorder.Finish();
  }
  double Uniform(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(draws_);
  }
  double Exponential(double mean) {
    return std::exponential_distribution<double>(1 / mean)(draws_);
  }

  Case link_;
  std::mt19937 draws_;
  Host reader_, sender_;
  MeasuredFrames measured_;
  BandwidthProbe probe_;
  FrameArrival last_;
  double now_ns_ = 0;
};

struct Errors {
  double median = 0, worst = 0;
};

double ErrorOf(const LinkUnderLoad& load, double mbps) {
  return std::abs(load.meter.bytes_per_second() / LinkUnderLoad::Goodput(mbps) - 1);
}

// Of the estimate after each of `frames` frames that were measured, from the ninth on, and not
// before the first probes are through.
Errors ErrorsOf(const Case& link, uint32_t seed, int frames) {
  LinkUnderLoad load(link, seed);
  std::vector<double> errors;
  while (static_cast<int>(errors.size()) < frames) {
    if (load.SendFrame() && load.meter.transfers() > 16 && load.seconds() > 4)
      errors.push_back(ErrorOf(load, link.mbps));
  }
  std::sort(errors.begin(), errors.end());
  return {errors[errors.size() / 2], errors.back()};
}

std::string NameOf(const Case& link, uint32_t seed) {
  return absl::StrFormat("seed %d, %.0f Mbps, %d to %d bytes, reader %.1f, sender %.1f", seed,
                         link.mbps, link.least_bytes, link.most_bytes, link.reader_share,
                         link.sender_share);
}

TEST(BandwidthRates, FoundWithReadersAndSendersThatAreStopped) {
  for (const double share : {1.0, 0.6, 0.3}) {
    for (const double mbps : {1.0, 4.0, 20.0, 100.0}) {
      for (const int64_t bytes : {16'384, 30'000, 130'000, 500'000}) {
        for (uint32_t seed = 1; seed <= 3; ++seed) {
          const Case link{mbps, bytes, seed == 1 ? bytes : 2 * bytes, share, seed % 2 ? share : 1};
          const Errors errors = ErrorsOf(link, seed, 40);
          // A frame that is over before a stopped reader looks at it says little.
          const bool blinks = share < 0.5 && static_cast<double>(bytes) * 8 / mbps < 15e3;
          EXPECT_LT(errors.median, blinks ? 0.08 : 0.05) << NameOf(link, seed);
          if (!blinks) {
            EXPECT_LT(errors.worst, 0.15) << NameOf(link, seed);
          }
        }
      }
    }
  }
}

// All that small frames tell of a slow link; of a fast one the probes tell.
TEST(BandwidthRates, FoundWithSmallFramesAndProbes) {
  for (const double share : {1.0, 0.3}) {
    for (const double mbps : {1.0, 4.0, 20.0, 100.0}) {
      for (uint32_t seed = 1; seed <= 3; ++seed) {
        const Case link{mbps, 8192, 11'000, share, share};
        const Errors errors = ErrorsOf(link, seed, 200);
        EXPECT_LT(errors.median, 0.1) << NameOf(link, seed);
        EXPECT_LT(errors.worst, 0.35) << NameOf(link, seed);
      }
    }
  }
}

// Whichever way it goes, after eight large frames that were measured at the latest, of which a link
// in use has one in 0.2 s. Where quotas stop both ends and each frame lasts for one period of them,
// the new rate shows at once, but only probes say it exactly.
TEST(BandwidthRates, AChangeShowsAfterEightFramesAndTwoSeconds) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    for (const auto& [before, after] :
         {std::pair(20.0, 10.0), {10.0, 20.0}, {50.0, 2.0}, {4.0, 100.0}}) {
      for (const double share : {1.0, 0.3}) {
        const Case link{before, 100'000, 150'000, share, share};
        LinkUnderLoad load(link, seed);
        for (int i = 0; i < 100; ++i) load.SendFrame();
        EXPECT_LT(ErrorOf(load, before), 0.1) << NameOf(link, seed);
        load.SetRate(after);
        const double until = load.seconds() + 2;
        for (int i = 0; i < 8 || load.seconds() < until; ++i) load.SendFrame();
        EXPECT_LT(ErrorOf(load, after), share < 1 && after > 20 ? 0.65 : 0.15)
            << NameOf(link, seed) << " to " << after;
      }
    }
  }
}

// A link that is faster than its reader is not taken for a slow one.
TEST(BandwidthRates, AFastLinkIsAsFastAsItsReader) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const Case link{10'000, 50'000, 200'000, 1, 1, 10e3};
    LinkUnderLoad load(link, seed);
    for (int i = 0; i < 50; ++i) load.SendFrame();
    EXPECT_GT(load.meter.bytes_per_second(), LinkUnderLoad::Goodput(1'000)) << NameOf(link, seed);
  }
}

}  // namespace
}  // namespace runnel::bandwidth_rates_test
