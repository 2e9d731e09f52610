#include "worker/core/data_endpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "proto/transport/link/address.h"

namespace runnel {

DataEndpoint::DataEndpoint(Options options, EventLoop* loop, Transport* transport, Logger* logger,
                           LinkAcceptor::HelloFn on_hello)
    : options_(std::move(options)),
      routes_({transport,
               &loop->clock(),
               {options_.central_address, CentralSubject().ToString()},
               Subject{Role::kWorker, options_.name}.ToString()}),
      refusals_(logger, &loop->clock()),
      acceptor_(loop, &limits_, std::move(on_hello),
                [this](absl::string_view why) { refusals_.Refused(why); }) {}

absl::Status DataEndpoint::CheckAddresses() const {
  if (!options_.advertised_address.empty()) {
    const absl::StatusOr<Address> advertised = ParseAddress(options_.advertised_address);
    if (advertised.ok() && !advertised->is_wildcard() && advertised->port != 0)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise ", options_.advertised_address,
                     ": give the host and the port by which other devices reach this one"));
  }
  if (options_.listen_address.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const Address address, ParseAddress(options_.listen_address));
  if (!address.is_wildcard()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen ", options_.listen_address,
                   ": other devices dial it, so it must be the address by which they reach this "
                   "one (or give that one with --advertise)"));
}

absl::Status DataEndpoint::Listen() {
  return has_given_address() ? acceptor_.Listen(&routes_, options_.listen_address)
                             : absl::OkStatus();
}

absl::Status DataEndpoint::ListenAt(const absl::StatusOr<std::string>& host) {
  if (host.ok()) return acceptor_.Listen(&routes_, Address{*host, 0}.ToString());
  return absl::Status(host.status().code(),
                      absl::StrCat(host.status().message(),
                                   ": give --listen, the address by which others reach this host"));
}

std::string DataEndpoint::address() const {
  return options_.advertised_address.empty() ? acceptor_.address() : options_.advertised_address;
}

}  // namespace runnel
