#pragma once
#include <string>

namespace plait {

/// The folder of the library or program that contains this function, with a slash: where plug-ins are. "" if unknown.
std::string own_folder();

}  // namespace plait
