#include "proto/crypto/join_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/join_exchange.h"
#include "proto/crypto/openssl.h"
#include "proto/crypto/tls_context.h"

namespace runnel {
namespace {

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Bound and listening, not blocking.
absl::StatusOr<std::unique_ptr<Socket>> Listen(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0)
    return absl::InvalidArgumentError(absl::StrCat("join door: ", host, " is no IP address"));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  auto socket = std::make_unique<Socket>(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (socket->get() >= 0 && bind(socket->get(), found->ai_addr, found->ai_addrlen) == 0 &&
      listen(socket->get(), static_cast<int>(JoinDoor::kMostConnections)) == 0) {
    return socket;
  }
  const std::string text =
      absl::StrCat("join door: cannot listen on ", host, ", port ", port, ": ", strerror(errno));
  return errno == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::InvalidArgumentError(text);
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

// Without descriptors or memory for another connection.
constexpr int64_t kFullMs = 100;

struct JoinDoor::Listening {
  std::unique_ptr<Socket> socket;
  Socket wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable: end
  OwnedSslContext context;
};

// One connection of the door. Nothing blocks.
class JoinDoor::Visitor {
 public:
  using AnswerFn = std::function<std::string(const std::string& request)>;

  Visitor(SSL_CTX* context, int fd, int64_t until_ms)
      : socket_(fd), until_ms_(until_ms), ssl_(SSL_new(context)) {
    SSL_set_fd(ssl_.get(), fd);
    SSL_set_accept_state(ssl_.get());
  }

  pollfd Wants() const { return {socket_.get(), wants_, 0}; }
  int64_t until_ms() const { return until_ms_; }
  // Goes on as far as bytes are there. False: it is over; an error says why if it was not in order.
  bool Go(const AnswerFn& answer, absl::Status& error);

 private:
  // False: bytes must come or go first, or it is over.
  bool Took(int result, absl::Status& error);

  const Socket socket_;
  const int64_t until_ms_;
  const OwnedSsl ssl_;
  short wants_ = POLLIN;  // NOLINT(runtime/int): poll's type
  bool over_ = false;
  std::string request_;
  std::string reply_;  // empty: the request is not whole
};

bool JoinDoor::Visitor::Took(int result, absl::Status& error) {
  if (result > 0) return true;
  const int why = SSL_get_error(ssl_.get(), result);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
    wants_ = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    ERR_clear_error();
    return false;
  }
  over_ = true;
  error = why == SSL_ERROR_SSL ? OpenSslError("TLS") : absl::UnavailableError("it went away");
  ERR_clear_error();
  return false;
}

bool JoinDoor::Visitor::Go(const AnswerFn& answer, absl::Status& error) {
  if (!SSL_is_init_finished(ssl_.get()) && !Took(SSL_do_handshake(ssl_.get()), error))
    return !over_;
  while (reply_.empty()) {
    char bytes[kMaxJoinRequestBytes];
    const size_t room = kMaxJoinRequestBytes - request_.size();
    if (room == 0) {
      error = absl::InvalidArgumentError(
          absl::StrCat("a request of more than ", kMaxJoinRequestBytes, " bytes"));
      return false;
    }
    const int got = SSL_read(ssl_.get(), bytes, static_cast<int>(room));
    if (!Took(got, error)) return !over_;
    request_.append(bytes, static_cast<size_t>(got));
    if (IsWholeJoinRequest(request_)) reply_ = answer(request_);
  }
  if (!Took(SSL_write(ssl_.get(), reply_.data(), static_cast<int>(reply_.size())), error))
    return !over_;
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  return false;
}

absl::StatusOr<std::unique_ptr<JoinDoor>> JoinDoor::Open(const Options& options) {
  auto listening = std::make_unique<Listening>();
  RUNNEL_ASSIGN_OR_RETURN(const Identity identity, options.authority->ServerIdentity());
  RUNNEL_ASSIGN_OR_RETURN(listening->context, ServingContext(identity));
  RUNNEL_ASSIGN_OR_RETURN(listening->socket, Listen(options.host, options.port));
  return std::unique_ptr<JoinDoor>(new JoinDoor(options, std::move(listening)));
}

JoinDoor::JoinDoor(const Options& options, std::unique_ptr<Listening> listening)
    : options_(options), listening_(std::move(listening)) {
  port_ = PortOf(listening_->socket->get());
  thread_ = std::thread([this] { Serve(); });
}

JoinDoor::~JoinDoor() {
  const uint64_t one = 1;
  (void)!write(listening_->wake.get(), &one, sizeof(one));
  thread_.join();
}

void JoinDoor::Accept() {
  while (true) {
    const int fd =
        accept4(listening_->socket->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Who waits stays in the listener's queue, and poll would say so again at once.
      const bool is_full =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_full) accepts_at_ms_ = NowMs() + kFullMs;
      return;
    }
    if (visitors_.size() >= kMostConnections) {
      visitors_.erase(visitors_.begin());
      options_.refusals->Refused("join door: too many connections at once, the oldest is cut off");
    }
    visitors_.push_back(
        std::make_unique<Visitor>(listening_->context.get(), fd, NowMs() + options_.patience_ms));
  }
}

std::string JoinDoor::Answer(const std::string& text) {
  const absl::StatusOr<JoinRequest> request = ParseJoinRequest(text);
  const absl::StatusOr<Identity> identity = request.ok()
                                                ? options_.authority->Redeem(*request)
                                                : absl::StatusOr<Identity>(request.status());
  if (identity.ok()) return JoinReply{options_.control_port, identity->certificate_pem}.ToString();
  options_.refusals->Refused(absl::StrCat("join door: ", identity.status().message()));
  return JoinRefusal(identity.status().message());
}

void JoinDoor::Serve() {
  // OpenSSL writes to sockets that the peer has closed: an error is enough.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  while (true) {
    const int64_t now_ms = NowMs();
    const bool accepts = now_ms >= accepts_at_ms_;
    std::vector<pollfd> waited = {
        {listening_->wake.get(), POLLIN, 0},
        {listening_->socket->get(), static_cast<short>(accepts ? POLLIN : 0), 0}};  // NOLINT
    for (const auto& visitor : visitors_) waited.push_back(visitor->Wants());
    // The oldest has the first deadline.
    int64_t wait_ms =
        visitors_.empty() ? -1 : std::max<int64_t>(visitors_.front()->until_ms() - now_ms, 0);
    if (!accepts) {
      const int64_t left_ms = accepts_at_ms_ - now_ms;
      wait_ms = wait_ms < 0 ? left_ms : std::min(wait_ms, left_ms);
    }
    if (poll(waited.data(), waited.size(), static_cast<int>(wait_ms)) < 0 && errno != EINTR) return;
    if (waited[0].revents != 0) return;
    for (size_t i = visitors_.size(); i-- > 0;) {
      absl::Status error;
      bool stays = true;
      if (waited[i + 2].revents != 0) {
        stays = visitors_[i]->Go([this](const std::string& text) { return Answer(text); }, error);
      } else if (NowMs() >= visitors_[i]->until_ms()) {
        stays = false;
        error = absl::DeadlineExceededError("it said nothing whole in time");
      }
      if (!error.ok())
        options_.refusals->Refused(absl::CEscape(absl::StrCat("join door: ", error.message())));
      if (!stays) visitors_.erase(visitors_.begin() + static_cast<int64_t>(i));
    }
    if (waited[1].revents != 0) Accept();
  }
}

}  // namespace runnel
