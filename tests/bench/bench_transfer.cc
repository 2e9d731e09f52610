// How long frames take through our transport beside a raw TCP transfer of the same bytes, over
// whatever network lies between two processes; deploy/lab/transfer.sh puts a shaped link there.
// Both keep one connection, take turns, and count until the receiver's answer is back. Medians.
//
//   bench_transfer --serve HOST:PORT                      (raw TCP there, frames at the next port)
//   bench_transfer --to HOST:PORT [--bytes N,N,...] [--rounds N] [--summary FILE]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/link/address.h"
#include "proto/transport/link/bandwidth.h"
#include "tests/bench/bench_tools.h"

namespace runnel {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 28;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_transfer: %s\n", why.c_str());
  std::exit(1);
}

struct Options {
  bool serve = false;
  Address address;
  std::vector<int64_t> bytes = {int64_t{4096} << 10};
  int rounds = 7;
  std::string summary;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--serve" || flag == "--to") {
      options.serve = flag == "--serve";
      const absl::StatusOr<Address> address = ParseAddress(value);
      if (!address.ok()) Fail(std::string(address.status().message()));
      options.address = *address;
    } else if (flag == "--bytes") {
      options.bytes.clear();
      for (const auto& word : absl::StrSplit(value, ',')) {
        int64_t bytes = 0;
        if (!absl::SimpleAtoi(word, &bytes) || bytes < 1 || bytes > kMaxBytes) Fail("bad --bytes");
        options.bytes.push_back(bytes);
      }
    } else if (flag == "--summary") {
      options.summary = value;
    } else if (flag != "--rounds" || !absl::SimpleAtoi(value, &options.rounds)) {
      Fail("bad flag or value: " + flag);
    }
  }
  if (argc % 2 == 0 || options.address.host.empty() || options.rounds < 1) {
    Fail("give --serve HOST:PORT or --to HOST:PORT");
  }
  return options;
}

std::string NextPort(Address address) {
  ++address.port;
  return address.ToString();
}

sockaddr_in ToSocketAddress(const Address& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(address.port));
  if (inet_pton(AF_INET, address.host.c_str(), &to.sin_addr) != 1) Fail("needs an IPv4 address");
  return to;
}

void SendAll(int fd, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t sent = send(fd, static_cast<const char*>(data) + at, bytes - at, MSG_NOSIGNAL);
    if (sent <= 0) Fail("cannot send");
    at += static_cast<size_t>(sent);
  }
}

// False: the peer has closed.
bool ReceiveAll(int fd, void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t got = recv(fd, static_cast<char*>(data) + at, bytes - at, 0);
    if (got <= 0) return false;
    at += static_cast<size_t>(got);
  }
  return true;
}

// Answers each frame, and each "size, then that many bytes" of the raw connection, with a few
// bytes; ends when the raw connection does.
class Answerer final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    FrameArrival arrival = frame.arrival;
    arrival.bytes = std::max<int64_t>(arrival.bytes, 1);
    arrival.ns = std::max<int64_t>(arrival.ns, 1);
    connection->Send(MakeProbeReport(arrival)).IgnoreError();
  }
  void OnClosed(const absl::Status&) override {}
  std::shared_ptr<Connection> connection;
};

int Serve(const Options& options) {
  const auto transport = MakeGrpcTransport({.allow_non_loopback = true});
  Answerer answerer;
  const auto frames = transport->Listen(NextPort(options.address), [&](auto connection) {
    answerer.connection = std::move(connection);
    return Accepted{&answerer, {}};
  });
  if (!frames.ok()) Fail(std::string(frames.status().message()));
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const sockaddr_in address = ToSocketAddress(options.address);
  if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listening, 1) != 0) {
    Fail("cannot listen");
  }
  const int fd = accept(listening, nullptr, nullptr);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  std::vector<char> buffer(kMaxBytes);
  for (int64_t bytes = 0; ReceiveAll(fd, &bytes, sizeof(bytes));) {
    if (bytes < 1 || bytes > kMaxBytes || !ReceiveAll(fd, buffer.data(), bytes)) break;
    SendAll(fd, "1", 1);
  }
  close(fd);
  close(listening);
  answerer.connection.reset();
  return 0;
}

// The sending side's raw connection; tries until the server is there.
int ConnectTcp(const Address& address) {
  const sockaddr_in to = ToSocketAddress(address);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      return fd;
    }
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Fail("no server at " + address.ToString());
}

class Waiter final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++answers_;
    if (const auto arrival = ParseProbeReport(frame.payload.bytes()); arrival.ok()) {
      last_ = *arrival;
    }
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok() && !done_) Fail(std::string(status.message()));
  }
  // All answers are there: however the connection ends now is well.
  void Finish() {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  FrameArrival WaitFor(int64_t answers) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return answers_ >= answers; });
    return last_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t answers_ = 0;  // guarded by mutex_
  FrameArrival last_;    // guarded by mutex_
  bool done_ = false;    // guarded by mutex_
};

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(MonotonicClock().NowNanos() - start_ns) * 1e-9;
}

Frame MakeFrame(int64_t bytes) {
  Frame frame = MakeProbe(bytes);
  uint32_t state = 1;
  for (std::byte& byte : frame.payload.mutable_bytes()) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  SealFrame(frame);
  return frame;
}

int SendTo(const Options& options) {
  const int fd = ConnectTcp(options.address);
  const auto transport = MakeGrpcTransport({.allow_non_loopback = true});
  Waiter waiter;
  const auto connection = transport->Dial(NextPort(options.address), &waiter, {});
  if (!connection.ok()) Fail(std::string(connection.status().message()));
  int64_t answers = 0;
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t bytes : options.bytes) {
    const Frame frame = MakeFrame(bytes);
    std::vector<double> tcp, ours, measured;
    // The first round opens windows and is left out.
    for (int round = 0; round <= options.rounds; ++round) {
      int64_t start_ns = MonotonicClock().NowNanos();
      SendAll(fd, &bytes, sizeof(bytes));
      SendAll(fd, frame.payload.bytes().data(), static_cast<size_t>(bytes));
      char answer = 0;
      if (!ReceiveAll(fd, &answer, 1)) Fail("the server is gone");
      tcp.push_back(SecondsSince(start_ns));
      start_ns = MonotonicClock().NowNanos();
      if (!(*connection)->Send(frame).ok()) Fail("the connection broke");
      const FrameArrival arrival = waiter.WaitFor(++answers);
      ours.push_back(SecondsSince(start_ns));
      measured.push_back(static_cast<double>(arrival.bytes) * 8e3 /
                         static_cast<double>(arrival.ns));
      if (round > 0) continue;
      tcp.clear();
      ours.clear();
      measured.clear();
    }
    std::printf("%9lld bytes: raw TCP %8.4f s, frame %8.4f s, ratio %.4f, measured %.3f Mbps\n",
                static_cast<long long>(bytes), Median(tcp), Median(ours),
                Median(ours) / Median(tcp), Median(measured));
    rows.push_back({{"bytes", bytes},
                    {"tcp_s", tcp},
                    {"frame_s", ours},
                    {"median_tcp_s", Median(tcp)},
                    {"median_frame_s", Median(ours)},
                    {"ratio", Median(ours) / Median(tcp)},
                    {"measured_mbps", Median(measured)}});
  }
  waiter.Finish();
  (*connection)->Close();
  close(fd);
  if (!options.summary.empty()) {
    std::ofstream file(options.summary);
    file << rows.dump(2) << "\n";
    if (!file.flush()) Fail("cannot write " + options.summary);
  }
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  const runnel::Options options = runnel::Parse(argc, argv);
  return options.serve ? runnel::Serve(options) : runnel::SendTo(options);
}
