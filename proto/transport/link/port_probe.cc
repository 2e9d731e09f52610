#include "proto/transport/link/port_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/base/clock.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;

int64_t NowNanos() {
  static const MonotonicClock clock;
  return clock.NowNanos();
}

// Two ends with one address are one socket that met itself: the kernel chose as the local port the
// one that was dialled. Nobody listens there.
bool MetItself(int socket) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) return false;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) return false;
  return own_bytes == peer_bytes && std::memcmp(&own, &peer, own_bytes) == 0;
}

PortAnswer AnswerOf(int error) {
  return error == ECONNREFUSED || error == ECONNRESET ? PortAnswer::kRefused : PortAnswer::kNone;
}

// Begins to connect. The answer, if it is there at once; else `socket` is set.
std::optional<PortAnswer> Begin(const std::string& host, int port, int* socket) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return PortAnswer::kNone;
  *socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int result = *socket < 0 ? -1 : connect(*socket, found->ai_addr, found->ai_addrlen);
  const int error = errno;
  freeaddrinfo(found);
  if (result == 0) return MetItself(*socket) ? PortAnswer::kRefused : PortAnswer::kAnswered;
  if (*socket >= 0 && error == EINPROGRESS) return std::nullopt;
  return AnswerOf(error);
}

// Of a socket that has something to say.
PortAnswer AnswerOfSocket(int socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return PortAnswer::kNone;
  if (error != 0) return AnswerOf(error);
  return MetItself(socket) ? PortAnswer::kRefused : PortAnswer::kAnswered;
}

}  // namespace

PortProbe::PortProbe()
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

PortProbe::~PortProbe() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
}

void PortProbe::Ask(std::string host, int port, int64_t timeout_ms,
                    std::function<void(PortAnswer)> done) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    new_.push_back(
        {std::move(host), port, NowNanos() + timeout_ms * kNanosPerMilli, std::move(done)});
  }
  eventfd_write(wake_, 1);
}

void PortProbe::Settle(std::vector<Question>& asked) {
  std::vector<pollfd> sockets;
  for (const Question& question : asked) sockets.push_back({question.socket, POLLOUT, 0});
  poll(sockets.data(), sockets.size(), 0);
  const int64_t now_ns = NowNanos();
  for (size_t i = 0; i < asked.size(); ++i) {
    Question& question = asked[i];
    std::optional<PortAnswer> answer;
    if (sockets[i].revents != 0) {
      answer = AnswerOfSocket(question.socket);
    } else if (now_ns >= question.deadline_ns) {
      answer = PortAnswer::kNone;
    }
    if (!answer.has_value()) continue;
    close(std::exchange(question.socket, -1));
    question.done(*answer);
  }
  std::erase_if(asked, [](const Question& question) { return question.socket < 0; });
}

void PortProbe::Run() {
  std::vector<Question> asked;
  std::vector<pollfd> sockets;
  while (true) {
    std::vector<Question> begun;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) break;
      begun = std::exchange(new_, {});
    }
    for (Question& question : begun) {
      const auto answer = Begin(question.host, question.port, &question.socket);
      if (!answer.has_value()) {
        asked.push_back(std::move(question));
        continue;
      }
      if (question.socket >= 0) close(question.socket);
      question.done(*answer);
    }
    sockets.assign(1, {wake_, POLLIN, 0});
    int64_t wait_ns = -1;
    for (const Question& question : asked) {
      sockets.push_back({question.socket, POLLOUT, 0});
      const int64_t left_ns = std::max<int64_t>(question.deadline_ns - NowNanos(), 0);
      wait_ns = wait_ns < 0 ? left_ns : std::min(wait_ns, left_ns);
    }
    poll(sockets.data(), sockets.size(),
         wait_ns < 0 ? -1 : static_cast<int>(wait_ns / kNanosPerMilli + 1));
    eventfd_t ignored = 0;
    eventfd_read(wake_, &ignored);
    Settle(asked);
  }
  for (const Question& question : asked) close(question.socket);
}

}  // namespace runnel
