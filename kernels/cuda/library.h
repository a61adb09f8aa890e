#pragma once
// Functions of libraries that are loaded at run time, by name.
#include <string>

namespace plait::cuda {

/// A function of a loaded library, and its name in the library's documentation, for errors.
template <class Signature>
struct LibraryFunction;
template <class Returned, class... P>
struct LibraryFunction<Returned(P...)> {
  Returned (*pointer)(P...) = nullptr;
  const char* name = "";
  Returned operator()(P... arguments) const { return pointer(arguments...); }
};

/// A library that stays loaded until the process ends: drivers have threads and exit handlers of their own.
class LoadedLibrary {
 public:
  /// `path`: as dlopen takes it. Throws Error(unsupported) with the loader's words and `hint`.
  LoadedLibrary(std::string path, std::string hint);

  /// Fills in the function of that symbol. Throws Error(unsupported) if the library has none.
  template <class Signature>
  void find(LibraryFunction<Signature>& function, const char* symbol) const {
    function.pointer = reinterpret_cast<Signature*>(find(symbol, function.name));
  }
  const std::string& path() const { return path_; }

 private:
  void* find(const char* symbol, const char* name) const;

  std::string path_, hint_;
  void* handle_ = nullptr;
};

}  // namespace plait::cuda
