#pragma once

#include <string>

namespace runnel {

// The profiles of devices that come with this program, in share/runnel/profiles beside its folder;
// empty: they are not there.
std::string ShippedProfiles();

}  // namespace runnel
