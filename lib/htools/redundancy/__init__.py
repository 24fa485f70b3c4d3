"""Global N+1: is there room for what a lost node had, whichever node is lost?"""
