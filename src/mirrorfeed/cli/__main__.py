from mirrorfeed.cli import main

main()
