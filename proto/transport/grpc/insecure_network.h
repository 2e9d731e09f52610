#pragma once

// Texts of --insecure-network of both programs. Without the flag and without certificates nothing
// listens or dials beyond loopback (grpc_transport.h, grpc_control.h), since streams are not
// encrypted.

namespace runnel {

inline constexpr char kInsecureNetworkHelp[] =
    "listen and dial beyond loopback although nothing is encrypted or authenticated: samples, "
    "weights and commands cross the network in plain text. For isolated networks only";

inline constexpr char kInsecureNetworkWarning[] =
    "--insecure-network: everything crosses the network in plain text and whoever reaches a port "
    "can take part; for isolated networks only";

}  // namespace runnel
