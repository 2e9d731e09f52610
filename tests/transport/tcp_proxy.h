#pragma once

// A network of a test's own: passes TCP connections on to another port of this host, cuts them, and
// swallows what they carry.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace runnel {

class TcpProxy {
 public:
  enum class Mode : uint8_t {
    kPass,
    kReset,    // connections are cut with a reset, and so is each new one
    kSwallow,  // connections stand, new ones are taken, and nothing gets through
  };

  explicit TcpProxy(const std::string& target)
      : target_port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))),
        listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = Loopback(0);
    bind(listener_, reinterpret_cast<sockaddr*>(&own), sizeof(own));
    listen(listener_, 64);
    socklen_t bytes = sizeof(own);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &bytes);
    port_ = ntohs(own.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpProxy() {
    stopped_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) Cut(pair);
    close(listener_);
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Set(Mode mode) { mode_ = mode; }
  // Connections taken so far.
  int taken() const { return taken_; }

 private:
  struct Pair {
    int near;
    int far;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  static void Cut(const Pair& pair) {
    for (const int end : {pair.near, pair.far}) {
      const linger reset = {1, 0};
      setsockopt(end, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      close(end);
    }
  }

  void Accept() {
    const int near = accept(listener_, nullptr, nullptr);
    const int far = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in target = Loopback(target_port_);
    const bool stands =
        near >= 0 && connect(far, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0;
    ++taken_;
    if (stands && mode_ != Mode::kReset) return pairs_.push_back({near, far});
    Cut({near, far});
  }

  // False: one end has ended.
  static bool Copy(int from, int to) {
    char bytes[65'536];
    const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t more = send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += more;
    }
    return got > 0;
  }

  void Run() {
    constexpr int kTurnMs = 5;
    while (!stopped_) {
      std::vector<pollfd> ends = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        ends.push_back({pair.near, POLLIN, 0});
        ends.push_back({pair.far, POLLIN, 0});
      }
      const Mode mode = mode_;
      // What is swallowed waits in the system's buffers, so only the listener is looked at.
      poll(ends.data(), mode == Mode::kSwallow ? 1 : ends.size(), kTurnMs);
      std::vector<Pair> left;
      for (size_t i = 0; i < pairs_.size(); ++i) {
        const Pair& pair = pairs_[i];
        bool stands = mode != Mode::kReset;
        if (mode == Mode::kPass && ends[1 + 2 * i].revents != 0) stands = Copy(pair.near, pair.far);
        if (mode == Mode::kPass && stands && ends[2 + 2 * i].revents != 0)
          stands = Copy(pair.far, pair.near);
        if (stands) {
          left.push_back(pair);
        } else {
          Cut(pair);
        }
      }
      pairs_ = std::move(left);
      if (ends[0].revents != 0) Accept();
    }
  }

  const uint16_t target_port_;
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<Mode> mode_{Mode::kPass};
  std::atomic<int> taken_{0};
  std::atomic<bool> stopped_{false};
  std::vector<Pair> pairs_;  // of the thread
  std::thread thread_;
};

}  // namespace runnel
