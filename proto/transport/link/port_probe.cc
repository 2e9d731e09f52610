#include "proto/transport/link/port_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "proto/base/clock.h"

namespace runnel {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr size_t kMostTargets = 4;  // of a name
// A name that was not found is looked up again, but not by each question.
constexpr int64_t kUnknownNs = 60'000 * kNanosPerMilli;

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

std::vector<PortProbe::Target> Find(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  std::vector<PortProbe::Target> targets;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return targets;
  for (const addrinfo* one = found; one != nullptr && targets.size() < kMostTargets;
       one = one->ai_next) {
    PortProbe::Target& target = targets.emplace_back();
    target.bytes = one->ai_addrlen;
    std::memcpy(&target.address, one->ai_addr, one->ai_addrlen);
  }
  freeaddrinfo(found);
  return targets;
}

void SetPort(int port, PortProbe::Target& target) {
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&target.address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&target.address);
  (target.address.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port) =
      htons(static_cast<uint16_t>(port));
}

// Begins to connect. The answer, if it is there at once; else `socket` is set.
std::optional<PortAnswer> Begin(const PortProbe::Target& target, int* socket) {
  *socket = ::socket(target.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (*socket < 0) return PortAnswer::kNone;
  const int result =
      connect(*socket, reinterpret_cast<const sockaddr*>(&target.address), target.bytes);
  const int error = errno;
  if (result == 0) return MetItself(*socket) ? PortAnswer::kRefused : PortAnswer::kAnswered;
  if (error == EINPROGRESS) return std::nullopt;
  return AnswerOf(error);
}

// The answer of a socket that has an event.
PortAnswer AnswerOfSocket(int socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return PortAnswer::kNone;
  if (error != 0) return AnswerOf(error);
  return MetItself(socket) ? PortAnswer::kRefused : PortAnswer::kAnswered;
}

}  // namespace

PortProbe::Names::~Names() { close(wake); }

PortProbe::PortProbe(ResolveFn resolve)
    : resolve_(resolve != nullptr ? std::move(resolve)
                                  : [](const std::string& host) { return Find(host, 0, 0); }),
      names_(std::make_shared<Names>()) {
  names_->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

PortProbe::~PortProbe() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  eventfd_write(names_->wake, 1);
  thread_.join();
}

void PortProbe::Ask(std::string host, int port, int64_t timeout_ms,
                    std::function<void(PortAnswer)> done) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    new_.push_back(
        {std::move(host), port, NowNanos() + timeout_ms * kNanosPerMilli, std::move(done)});
  }
  eventfd_write(names_->wake, 1);
}

void PortProbe::LookUp(const std::shared_ptr<Names>& names, const ResolveFn& resolve) {
  std::unique_lock<std::mutex> lock(names->mutex);
  while (!names->to_look_up.empty()) {
    const std::string host = names->to_look_up.front();
    lock.unlock();
    std::vector<Target> targets = resolve(host);
    lock.lock();
    names->to_look_up.pop_front();
    names->known[host] = {true, std::move(targets), NowNanos()};
    eventfd_write(names->wake, 1);
  }
}

std::optional<std::vector<PortProbe::Target>> PortProbe::TargetsOf(const std::string& host,
                                                                   int port) {
  // A number needs nobody's answer.
  std::vector<Target> targets = Find(host, port, AI_NUMERICHOST);
  if (!targets.empty()) return targets;
  const std::lock_guard<std::mutex> lock(names_->mutex);
  const auto [at, is_new] = names_->known.try_emplace(host);
  Name& name = at->second;
  const bool is_stale =
      name.is_known && name.targets.empty() && NowNanos() - name.known_ns > kUnknownNs;
  if (is_new || is_stale) {
    name.is_known = false;
    names_->to_look_up.push_back(host);
    if (names_->to_look_up.size() == 1)
      std::thread([names = names_, resolve = resolve_] { LookUp(names, resolve); }).detach();
  }
  if (!name.is_known) return std::nullopt;
  targets = name.targets;
  for (Target& target : targets) SetPort(port, target);
  return targets;
}

void PortProbe::BeginWhatIsKnown(std::vector<Question>& asked) {
  for (Question& question : asked) {
    if (question.begun) continue;
    const std::optional<std::vector<Target>> targets = TargetsOf(question.host, question.port);
    if (!targets.has_value()) continue;
    question.begun = true;
    for (const Target& target : *targets) {
      int socket = -1;
      const std::optional<PortAnswer> answer = Begin(target, &socket);
      if (!answer.has_value()) {
        question.sockets.push_back(socket);
        continue;
      }
      if (socket >= 0) close(socket);
      question.refused |= answer == PortAnswer::kRefused;
      if (answer == PortAnswer::kAnswered) question.Answer(PortAnswer::kAnswered);
    }
  }
}

void PortProbe::Question::Answer(PortAnswer answer) {
  for (const int socket : sockets) close(socket);
  sockets.clear();
  if (done != nullptr) std::exchange(done, nullptr)(answer);
}

void PortProbe::Settle(std::vector<Question>& asked) {
  const int64_t now_ns = NowNanos();
  for (Question& question : asked) {
    std::vector<pollfd> sockets;
    for (const int socket : question.sockets) sockets.push_back({socket, POLLOUT, 0});
    poll(sockets.data(), sockets.size(), 0);
    bool is_answered = false;
    for (const pollfd& one : sockets) {
      if (one.revents == 0) continue;
      const PortAnswer answer = AnswerOfSocket(one.fd);
      is_answered |= answer == PortAnswer::kAnswered;
      question.refused |= answer == PortAnswer::kRefused;
      close(one.fd);
      std::erase(question.sockets, one.fd);
    }
    if (is_answered) {
      question.Answer(PortAnswer::kAnswered);
    } else if ((question.begun && question.sockets.empty()) || now_ns >= question.deadline_ns) {
      question.Answer(question.refused ? PortAnswer::kRefused : PortAnswer::kNone);
    }
  }
  std::erase_if(asked, [](const Question& question) { return question.done == nullptr; });
}

void PortProbe::Run() {
  std::vector<Question> asked;
  std::vector<pollfd> sockets;
  while (true) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) break;
      std::move(new_.begin(), new_.end(), std::back_inserter(asked));
      new_.clear();
    }
    BeginWhatIsKnown(asked);
    Settle(asked);
    sockets.assign(1, {names_->wake, POLLIN, 0});
    int64_t wait_ns = -1;
    for (const Question& question : asked) {
      for (const int socket : question.sockets) sockets.push_back({socket, POLLOUT, 0});
      const int64_t left_ns = std::max<int64_t>(question.deadline_ns - NowNanos(), 0);
      wait_ns = wait_ns < 0 ? left_ns : std::min(wait_ns, left_ns);
    }
    poll(sockets.data(), sockets.size(),
         wait_ns < 0 ? -1 : static_cast<int>(wait_ns / kNanosPerMilli + 1));
    eventfd_t ignored = 0;
    eventfd_read(names_->wake, &ignored);
  }
  for (Question& question : asked) {
    question.done = nullptr;
    question.Answer(PortAnswer::kNone);
  }
}

}  // namespace runnel
