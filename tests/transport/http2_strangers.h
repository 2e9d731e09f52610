#pragma once

// Connections that speak as much HTTP/2 as it takes to make a gRPC server put together a message
// that never ends: all but its last byte is sent, as far as the windows let it.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace runnel {

class Http2Stranger {
 public:
  // address: 127.0.0.1:PORT; path: of the call; bytes: of the message that is announced.
  Http2Stranger(const std::string& address, const std::string& path, uint32_t bytes)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), left_(bytes - 1) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to);
    std::string head;
    for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                      {":scheme", "http"},
                                      {":path", path},
                                      {":authority", "x"},
                                      {"content-type", "application/grpc"},
                                      {"te", "trailers"}}) {
      head += std::string(1, '\0');
      for (const std::string& text : {name, value}) head += static_cast<char>(text.size()) + text;
    }
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
          Frame(kHeaders, 4, 1, head) + Frame(kData, 0, 1, std::string(1, '\0') + Number(bytes)));
  }
  ~Http2Stranger() { close(socket_); }
  Http2Stranger(const Http2Stranger&) = delete;

  // False: nothing can be sent now.
  bool Step() {
    Read();
    const int64_t bytes = std::min({left_, windows_[0], windows_[1], int64_t{16} << 10});
    if (bytes <= 0 || !Write(Frame(kData, 0, 1, std::string(static_cast<size_t>(bytes), 'x'))))
      return false;
    for (int64_t* each : {&left_, &windows_[0], &windows_[1]}) *each -= bytes;
    return true;
  }

 private:
  enum Kind : uint8_t { kData = 0, kHeaders = 1, kSettings = 4, kWindowUpdate = 8 };

  static std::string Number(uint32_t value) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
    return text;
  }
  static uint32_t NumberAt(const std::string& text, size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(text[i]);
    return value;
  }
  static std::string Frame(Kind kind, int flags, uint32_t stream, const std::string& payload) {
    return Number(static_cast<uint32_t>(payload.size())).substr(1) + static_cast<char>(kind) +
           static_cast<char>(flags) + Number(stream) + payload;
  }
  bool Write(const std::string& bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void Read() {
    char bytes[4096];
    for (ssize_t got; (got = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
      seen_.append(bytes, static_cast<size_t>(got));
    while (seen_.size() >= 9) {
      const size_t size = NumberAt(seen_, 0) >> 8;
      if (seen_.size() < 9 + size) return;
      const auto kind = static_cast<Kind>(seen_[3]);
      if (kind == kWindowUpdate) windows_[NumberAt(seen_, 5) == 0 ? 0 : 1] += NumberAt(seen_, 9);
      if (kind == kSettings && (seen_[4] & 1) == 0) {
        for (size_t at = 9; at < 9 + size; at += 6) {
          constexpr char kInitialWindow = 4;
          if (seen_[at + 1] == kInitialWindow)
            windows_[1] += NumberAt(seen_, at + 2) - kFirstWindow;
        }
        Write(Frame(kSettings, 1, 0, ""));
      }
      seen_.erase(0, 9 + size);
    }
  }

  static constexpr int64_t kFirstWindow = 65'535;
  const int socket_;
  int64_t left_;
  int64_t windows_[2] = {kFirstWindow - 5, kFirstWindow - 5};  // connection, stream
  std::string seen_;
};

inline int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// What this process has more while so many strangers send to its server.
inline int64_t GrowthUnderStrangers(int count, const std::string& address, const std::string& path,
                                    uint32_t bytes, std::chrono::milliseconds time) {
  const int64_t before = ResidentBytes();
  int64_t most = before;
  std::vector<std::unique_ptr<Http2Stranger>> strangers;
  for (int i = 0; i < count; ++i)
    strangers.push_back(std::make_unique<Http2Stranger>(address, path, bytes));
  for (const auto end = std::chrono::steady_clock::now() + time;
       std::chrono::steady_clock::now() < end;) {
    bool moved = false;
    for (const auto& stranger : strangers) moved = stranger->Step() || moved;
    most = std::max(most, ResidentBytes());
    if (!moved) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return most - before;
}

}  // namespace runnel
