// What this test checks, the compiler and the linker have checked before it runs.
int main() {}
