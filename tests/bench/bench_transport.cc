// How fast frames go from one end of a gRPC connection to the other over loopback, by chunk size,
// beside raw TCP: they take turns, so that a busy machine slows all of them alike. Medians. Also
// CRC-32, a frame there and back, and how close pacing comes to the link that it imitates.
//
//   bench_transport [--frame-bytes N] [--frames N] [--rounds N] [--summary FILE]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/link/frame_assembler.h"
#include "tests/bench/bench_frames.h"
#include "tests/bench/bench_tools.h"
#include "tests/support/in_process/loopback.h"

namespace runnel {
namespace {

constexpr int kWindow = 4;  // frames under way, as an in-flight cap would have it

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(MonotonicClock().NowNanos() - start_ns) * 1e-9;
}

Frame MakeFrame(int64_t bytes) {
  BufferPool pool;
  Frame frame;
  frame.payload = pool.Allocate(static_cast<size_t>(bytes));
  uint32_t state = 1;
  for (std::byte& byte : frame.payload.mutable_bytes()) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  SealFrame(frame);
  return frame;
}

// Counts frames, and sends back an answer if there is one.
class Counter final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++frames_;
    if (answer_ != nullptr) answer_->Send(small_).IgnoreError();
    changed_.notify_all();
  }
  void OnClosed(const absl::Status&) override {}

  void Answer(Connection* connection) {
    std::lock_guard<std::mutex> lock(mutex_);
    answer_ = connection;
  }
  void WaitFor(int64_t frames) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return frames_ >= frames; });
  }
  int64_t frames() {
    std::lock_guard<std::mutex> lock(mutex_);
    return frames_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t frames_ = 0;            // guarded by mutex_
  Connection* answer_ = nullptr;  // guarded by mutex_
  const Frame small_ = MakeFrame(0);
};

// A connection within this process.
class Line {
 public:
  Line(std::unique_ptr<Transport> transport, const LinkShaping& shaping)
      : transport_(std::move(transport)) {
    auto listener = transport_->Listen("127.0.0.1:0", [this](auto connection) {
      accepted_ = std::move(connection);
      return Accepted{&there_, {}};
    });
    if (!listener.ok()) Fail(listener.status().ToString());
    listener_ = *std::move(listener);
    dialled_ = *transport_->Dial(listener_->address(), &back_, shaping);
    // The first frame also waits for the connection.
    Send(MakeFrame(1));
    there_.WaitFor(1);
  }
  ~Line() {
    dialled_.reset();
    accepted_.reset();
    listener_.reset();
  }

  void Send(const Frame& frame) {
    if (!dialled_->Send(frame).ok()) Fail("the connection broke");
  }
  Counter& there() { return there_; }
  Counter& back() { return back_; }
  Connection* accepted() { return accepted_.get(); }

  double MegabytesPerSecond(const Frame& frame, int frames) {
    const int64_t before = there_.frames();
    const int64_t start_ns = MonotonicClock().NowNanos();
    for (int i = 0; i < frames; ++i) {
      there_.WaitFor(before + i + 1 - kWindow);
      Send(frame);
    }
    there_.WaitFor(before + frames);
    return static_cast<double>(frames * frame.payload.size()) * 1e-6 / SecondsSince(start_ns);
  }

 private:
  Counter there_, back_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Connection> dialled_, accepted_;
};

// The same bytes through a socket; the receiver reads each frame into one buffer.
double TcpMegabytesPerSecond(const Frame& frame, int frames) {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  if (bind(listening, name, size) != 0 || listen(listening, 1) != 0 ||
      getsockname(listening, name, &size) != 0) {
    Fail("cannot listen");
  }
  const int sender = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(sender, name, size) != 0) Fail("cannot connect");
  const int receiver = accept(listening, nullptr, nullptr);
  const int yes = 1;
  setsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  const size_t bytes = frame.payload.size();
  const int64_t start_ns = MonotonicClock().NowNanos();
  std::thread reading([&] {
    std::vector<char> buffer(bytes);
    for (int i = 0; i < frames; ++i) {
      for (size_t at = 0; at < bytes;) {
        const ssize_t got = read(receiver, buffer.data() + at, bytes - at);
        if (got <= 0) Fail("cannot read");
        at += static_cast<size_t>(got);
      }
    }
  });
  for (int i = 0; i < frames; ++i) {
    for (size_t at = 0; at < bytes;) {
      const ssize_t sent = write(sender, frame.payload.bytes().data() + at, bytes - at);
      if (sent <= 0) Fail("cannot write");
      at += static_cast<size_t>(sent);
    }
  }
  reading.join();
  const double rate = static_cast<double>(frames * bytes) * 1e-6 / SecondsSince(start_ns);
  for (const int fd : {listening, sender, receiver}) close(fd);
  return rate;
}

double CrcGigabytesPerSecond(const Frame& frame) {
  std::vector<double> rates;
  uint32_t sum = 0;
  for (int i = 0; i < 51; ++i) {
    const int64_t start_ns = MonotonicClock().NowNanos();
    sum ^= Crc32(sum, frame.payload.bytes());
    rates.push_back(static_cast<double>(frame.payload.size()) * 1e-9 / SecondsSince(start_ns));
  }
  if (sum == 1) std::puts("");  // the sum is used
  return Median(rates);
}

double PingPongMicroseconds() {
  Line line(MakeGrpcTransport({}), {});
  line.there().Answer(line.accepted());
  const Frame frame = MakeFrame(1024);
  std::vector<double> times;
  for (int i = 1; i <= 500; ++i) {
    const int64_t start_ns = MonotonicClock().NowNanos();
    line.Send(frame);
    line.back().WaitFor(i);
    times.push_back(SecondsSince(start_ns) * 1e6);
  }
  return Median(times);
}

// 4096 KB at 50 Mbps: the time taken over the time that the link would take.
double PacingRatio(std::unique_ptr<Transport> transport) {
  LinkShaping shaping;
  shaping.megabits_per_second = 50;
  Line line(std::move(transport), shaping);
  const Frame frame = MakeFrame(4096 * 1024);
  const double ideal = static_cast<double>(frame.payload.size() + kFrameHeaderBytes) * 8 / 50e6;
  const int64_t start_ns = MonotonicClock().NowNanos();
  line.Send(frame);
  line.there().WaitFor(2);
  return SecondsSince(start_ns) / ideal;
}

nlohmann::json Throughput(const FrameOptions& options, const Frame& frame) {
  std::vector<int64_t> chunks;
  for (int64_t chunk = 64 << 10; chunk <= kMaxChunkBytes; chunk *= 2) chunks.push_back(chunk);
  std::vector<std::unique_ptr<Line>> lines;
  for (const int64_t chunk : chunks) {
    GrpcTransportOptions grpc_options;
    grpc_options.chunk_bytes = chunk;
    lines.push_back(std::make_unique<Line>(MakeGrpcTransport(grpc_options), LinkShaping{}));
    lines.back()->MegabytesPerSecond(frame, kWindow);  // windows and pools grow
  }
  std::vector<double> tcp;
  std::vector<std::vector<double>> grpc(chunks.size());
  for (int round = 0; round < options.rounds; ++round) {
    tcp.push_back(TcpMegabytesPerSecond(frame, options.frames));
    for (size_t i = 0; i < chunks.size(); ++i) {
      grpc[i].push_back(lines[i]->MegabytesPerSecond(frame, options.frames));
    }
  }
  const double tcp_rate = Median(tcp);
  std::printf("raw TCP        %7.0f MB/s\n", tcp_rate);
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const double rate = Median(grpc[i]);
    std::printf("gRPC %5lld KiB %7.0f MB/s  %.2f of TCP\n", static_cast<long long>(chunks[i] >> 10),
                rate, rate / tcp_rate);
    rows.push_back(
        {{"chunk_bytes", chunks[i]}, {"mb_per_s", rate}, {"ratio_to_tcp", rate / tcp_rate}});
  }
  return {{"tcp_mb_per_s", tcp_rate}, {"grpc", rows}, {"default_chunk_bytes", kDefaultChunkBytes}};
}

int Main(int argc, char** argv) {
  const FrameOptions options =
      ParseFrames(argc, argv, {.frame_bytes = int64_t{4} << 20, .frames = 40, .rounds = 7});
  const Frame frame = MakeFrame(options.frame_bytes);
  nlohmann::json summary = Throughput(options, frame);
  summary["bench"] = "transport";
  summary["frame_bytes"] = options.frame_bytes;
  const double crc = CrcGigabytesPerSecond(frame);
  const double ping_pong = PingPongMicroseconds();
  const double loopback = PacingRatio(MakeLoopbackTransport());
  const double grpc = PacingRatio(MakeGrpcTransport({}));
  std::printf("CRC-32         %7.1f GB/s\n", crc);
  std::printf("ping-pong      %7.0f us (1 KiB there, header back)\n", ping_pong);
  std::printf("pacing         %.4f loopback, %.4f gRPC of the ideal time, 4096 KB at 50 Mbps\n",
              loopback, grpc);
  summary["crc_gb_per_s"] = crc;
  summary["ping_pong_us"] = ping_pong;
  summary["pacing_ratio"] = {{"loopback", loopback}, {"grpc", grpc}};
  if (!options.summary.empty()) {
    std::ofstream file(options.summary);
    file << summary.dump(2) << "\n";
    if (!file.flush()) Fail("cannot write " + options.summary);
  }
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Main(argc, argv); }
